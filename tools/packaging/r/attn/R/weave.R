# Makes this package's vignettes, which are HTML with code between lines "<<Words about a picture>>=" and "@". It takes
# base R alone: Sweave would take LaTeX.
.onLoad <- function(libname, pkgname) {
  tools::vignetteEngine("html", weave = weave, tangle = tangle, pattern = "[.]Rhtml$", package = pkgname)
}

# A file of bytes as text.
base64 <- function(path) {
  bytes <- as.integer(readBin(path, "raw", file.size(path)))
  n_missing <- -length(bytes) %% 3L
  x <- matrix(c(bytes, integer(n_missing)), 3L)
  sixes <- rbind(x[1L, ] %/% 4L, x[1L, ] %% 4L * 16L + x[2L, ] %/% 16L, x[2L, ] %% 16L * 4L + x[3L, ] %/% 64L,
                 x[3L, ] %% 64L)
  digits <- c(LETTERS, letters, 0:9, "+", "/")[sixes + 1L]
  digits[length(digits) + 1L - seq_len(n_missing)] <- "="
  paste(digits, collapse = "")
}

# Runs code as at R's prompt. Gives what is seen, and the picture, as HTML.
run_chunk <- function(code, words, envir) {
  path <- tempfile(fileext = ".png")
  grDevices::png(path, width = 1400, height = 900, res = 200)
  device <- grDevices::dev.cur()
  on.exit(grDevices::dev.off(device))
  seen <- utils::capture.output(source(exprs = parse(text = code, keep.source = TRUE), local = envir, echo = TRUE,
                                       spaced = FALSE, max.deparse.length = Inf))
  on.exit()
  grDevices::dev.off(device)
  seen <- gsub("<", "&lt;", gsub("&", "&amp;", seen, fixed = TRUE), fixed = TRUE)
  c("<pre>", seen, "</pre>",
    if (file.exists(path)) sprintf("<img alt=\"%s\" src=\"data:image/png;base64,%s\">", words, base64(path)))
}

weave <- function(file, ...) {
  lines <- readLines(file, encoding = "UTF-8")
  begins <- grep("^<<.*>>=$", lines)
  ends <- which(lines == "@")
  envir <- new.env(parent = globalenv())
  for (i in seq_along(begins)) {
    words <- sub("^<<(.*)>>=$", "\\1", lines[begins[i]])
    lines[begins[i]] <- paste(run_chunk(lines[seq(begins[i] + 1L, ends[i] - 1L)], words, envir), collapse = "\n")
    lines[seq(begins[i] + 1L, ends[i])] <- NA
  }
  output <- sub("[.]Rhtml$", ".html", basename(file))
  writeLines(enc2utf8(lines[!is.na(lines)]), output, useBytes = TRUE)
  output
}

tangle <- function(file, ...) {
  lines <- readLines(file, encoding = "UTF-8")
  inside <- cumsum(grepl("^<<.*>>=$", lines)) > cumsum(lines == "@")
  output <- sub("[.]Rhtml$", ".R", basename(file))
  writeLines(lines[inside & !grepl("^<<.*>>=$", lines)], output)
  output
}
