# See faces.py: Rscript faces.R MODEL, in a directory with files and calls.R.
library(attn)
model <- attn_model(commandArgs(TRUE)[1])

field <- function(x) {
  x <- enc2utf8(x)
  quoted <- grepl("[,\"\r\n]|^ | $", x)
  x[quoted] <- paste0("\"", gsub("\"", "\"\"", x[quoted], fixed = TRUE), "\"")
  x
}
cells <- function(x) {
  if (is.double(x)) ifelse(is.na(x), "NA", sprintf("%.6f", x))
  else if (is.integer(x)) ifelse(is.na(x), "NA", as.character(x))
  else ifelse(is.na(x), "NA", field(x))
}
write_bytes <- function(lines, file) writeBin(charToRaw(paste0(lines, "\n", collapse = "")), file)

# What a call gives, as rows in OUTPUT.r, and what it says in OUTPUT.r.said.
keep <- function(output, call) {
  said <- character()
  got <- withCallingHandlers(tryCatch(call(), error = function(e) {
    said <<- c(said, conditionMessage(e))
    NULL
  }), message = function(m) {
    said <<- c(said, strsplit(conditionMessage(m), "\n")[[1]])
    invokeRestart("muffleMessage")
  })
  if (length(said)) write_bytes(said, paste0(output, ".r.said"))
  if (is.null(got)) return()
  lines <- c(paste(field(names(got)), collapse = ","), if (nrow(got)) do.call(paste, c(unname(lapply(got, cells)), sep = ",")))
  write_bytes(lines, paste0(output, ".r"))
}

answer_suite <- function(output, ...) keep(output, function() suite(model, ..., progress = FALSE))

answer <- function(file, column = NULL, ...) {
  if (is.null(column)) x <- readLines(file, encoding = "UTF-8", warn = FALSE)
  else {
    names <- readLines(file, 1L, warn = FALSE)
    counts <- vapply(c(",", "\t", ";"), function(s) length(gregexpr(s, gsub("\"[^\"]*\"", "", names, useBytes = TRUE), fixed = TRUE,
                                                                    useBytes = TRUE)[[1]]) *
                       grepl(s, gsub("\"[^\"]*\"", "", names, useBytes = TRUE), fixed = TRUE, useBytes = TRUE), 1)
    x <- read.csv(file, sep = names(counts)[which.max(counts)], colClasses = "character", na.strings = character(), check.names = FALSE,
                  encoding = "UTF-8", quote = "\"")
  }
  keep(file, function() surprisal(model, x, column = column, ..., progress = FALSE))
}
source("calls.R", encoding = "UTF-8")
