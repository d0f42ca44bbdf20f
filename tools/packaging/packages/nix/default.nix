# nix-build -E '(import <nixpkgs> {}).callPackage tools/packaging/packages/nix { }'
{ stdenv, lib }:

stdenv.mkDerivation {
  pname = "attn";
  version = "0.3.0";
  src = lib.cleanSource ../../..;
  makeFlags = [ "CC=${stdenv.cc.targetPrefix}cc" "PREFIX=${placeholder "out"}" ];
  enableParallelBuilding = true;
  doInstallCheck = stdenv.buildPlatform.canExecute stdenv.hostPlatform;
  installCheckPhase = ''
    $CC ${../app.c} -I$out/include -L$out/lib -lattn -Wl,-rpath,$out/lib -o app
    ./app
  '';
  meta = {
    description = "GPT-2 inference in one C header";
    license = lib.licenses.mit;
    platforms = lib.platforms.unix;
  };
}
