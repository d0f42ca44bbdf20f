# brew install --build-from-source --HEAD ./tools/packaging/packages/homebrew/attn.rb
class Attn < Formula
  desc "GPT-2 inference in one C header"
  homepage "https://example.invalid/attn.h"
  license "MIT"
  head "https://example.invalid/attn.h.git", branch: "main"

  # Apple's clang has no OpenMP of its own.
  depends_on "libomp" if OS.mac?

  def install
    args = ["PREFIX=#{prefix}"]
    if OS.mac?
      omp = Formula["libomp"]
      args << "OPENMP=0" << "CFLAGS=-O2 -Xpreprocessor -fopenmp -I#{omp.opt_include}"
      args << "LDFLAGS=-L#{omp.opt_lib} -lomp"
    end
    system "make", *args, "install"
  end

  test do
    (testpath/"app.c").write <<~C
      #include <attn.h>
      int main(void) { return attn_version() != ATTN_VERSION; }
    C
    system ENV.cc, "app.c", "-I#{include}", "-L#{lib}", "-lattn", "-Wl,-rpath,#{lib}", "-o", "app"
    system "./app"
    assert_match version.to_s, shell_output("#{bin}/attn-gpt2 --version") unless head?
  end
end
