# The included model: a tiny one that knows children's stories.
included <- function() system.file("extdata", "tiny-stories.attn", package = "attn")

attn_model <- function(path = included(), threads = 2L) {
  if (!is.character(path) || length(path) != 1L || is.na(path))
    refuse("path: expected the name of one .attn file")
  if (length(threads) != 1L || is.na(threads) || threads < 0 || threads > 256 || threads %% 1 != 0)
    refuse("threads: expected a whole number from 1 to 256, or 0 for all processors")
  opened <- .Call(C_open, path, as.integer(threads))
  config <- stats::setNames(as.list(opened[[2L]]), c("n_ctx", "n_vocab", "n_layer", "n_head", "bos", "eos"))
  structure(list(pointer = opened[[1L]], path = path, config = config), class = "attn_model")
}

print.attn_model <- function(x, ...) {
  cat(sprintf("<attn_model %s: %d layers of %d heads, %d tokens, context of %d>\n", basename(x$path),
              x$config$n_layer, x$config$n_head, x$config$n_vocab, x$config$n_ctx))
  invisible(x)
}

is_model <- function(model) {
  if (!inherits(model, "attn_model")) refuse("model: expected what attn_model() returns")
}

# An error in words that need no call beside them.
refuse <- function(...) stop(..., call. = FALSE)

# One whole number from `least` to `most`.
whole <- function(x, name, least, most) {
  if (!is.numeric(x) || length(x) != 1L || is.na(x) || x != floor(x) || x < least || x > most)
    refuse(sprintf("%s: expected a whole number from %.0f to %.0f", name, least, most))
  x
}

one_text <- function(x, name) {
  if (!is.character(x) || length(x) != 1L || is.na(x)) refuse(name, ": expected one text")
  utf8_of(x, name)
}

# What a function of C gives of 0, 1 and so on, as long as there is something.
all_of <- function(...) {
  found <- list()
  while (!is.null(got <- .Call(..., length(found)))) found[[length(found) + 1L]] <- got
  found
}

# The commands and the settings of each are those of the programs: tables in C have them, and refuse what is wrong.
lens_commands <- function() {
  got <- do.call(rbind, all_of(C_command))
  data.frame(command = got[, 1L], about = got[, 2L], stringsAsFactors = FALSE)
}

lens_settings <- function(command) {
  got <- matrix(as.character(unlist(all_of(C_setting, one_text(command, "command")))), 6L)
  data.frame(setting = got[1L, ], word = as.integer(got[2L, ]), kind = got[3L, ], takes = got[4L, ], default = got[5L, ],
             about = got[6L, ], stringsAsFactors = FALSE)
}

# Texts of any vector, in UTF-8; messages call it `name`. What R cannot convert stays as it is: it is UTF-8 that was read in
# the C locale, or it is refused.
utf8_of <- function(x, name) {
  if (!(is.factor(x) || is.character(x) || is.numeric(x) || is.logical(x)))
    refuse(name, ": expected texts, numbers, or TRUE or FALSE")
  if (anyNA(x)) refuse(name, ": number ", which(is.na(x))[1L], " is NA")
  if (is.numeric(x)) return(sprintf(if (all(x == floor(x))) "%.0f" else "%.15g", x))
  x <- as.character(x)
  native <- Encoding(x) == "unknown"
  known <- enc2utf8(x)
  known[native] <- iconv(x[native], "", "UTF-8")
  known[is.na(known)] <- x[is.na(known)]
  wrong <- which(!validUTF8(known))
  if (length(wrong))
    refuse(name, ": text ", wrong[1L], " is not UTF-8; read its file with fileEncoding = \"windows-1252\", or save that as ",
           "UTF-8 (in Excel \"CSV UTF-8\")")
  Encoding(known) <- "UTF-8"
  known
}

# Texts as C takes them: their bytes, one text behind another, and where each ends.
bytes_of <- function(texts) list(charToRaw(paste(texts, collapse = "")), cumsum(as.numeric(nchar(texts, "bytes"))))

# The value of a setting as C takes it: texts, or the ids of tokens in place of a word. kind: NA where C will refuse.
value_of <- function(x, name, kind, is_word) {
  texts <- utf8_of(x, name)
  if (is_word && is.numeric(x)) return(as.integer(x))
  if (kind %in% "file") texts <- path.expand(texts)
  if (kind %in% "choices" || is.numeric(x)) texts <- paste(texts, collapse = ",")
  bytes_of(texts)
}

# The settings and the table that a call gives, for C: names, values, and the number of rows of the table or -1. Words stand in
# the order of the command; the texts of a table are those of columns that a setting names.
given_of <- function(command, given) {
  known <- lens_settings(command)
  table <- Find(is.data.frame, given)
  given <- Filter(function(x) !is.data.frame(x), given)
  words <- known$setting[match(seq_len(max(0L, known$word)), known$word)]
  names <- if (is.null(names(given))) rep("", length(given)) else names(given)
  free <- which(names == "")
  if (length(free) && !length(words)) refuse(command, ": every setting needs its name")
  names[free] <- words[pmin(seq_along(free), length(words))]
  kinds <- known$kind[match(names, known$setting)]
  twice <- duplicated(names) & !kinds %in% "texts"
  if (any(twice)) refuse(names[twice][1L], " is given twice")
  kept <- which(!vapply(given, is.null, NA))
  values <- lapply(kept, function(i) value_of(given[[i]], names[i], kinds[i], names[i] %in% words))
  named <- names(table) %in% unlist(given[kinds %in% "text"])
  columns <- Map(function(x, name, is_named) if (is_named) bytes_of(utf8_of(x, name)), table, names(table), named)
  list(utf8_of(c(names(table), names[kept]), "names"), c(unname(columns), values),
       rep(c(NROW(table), -1L), c(length(columns), length(kept))))
}

# Asks, and gives a pointer to the answer. R does not see the memory of answers, so it looks now and then for some that
# nobody has any more. model: NULL where none is needed.
asked <- new.env()
asked$n <- 0
ask <- function(model, command, given, progress) {
  if (!is.null(model)) is_model(model)
  if ((asked$n <- asked$n + 1) %% 16 == 0) gc()
  bar <- NULL
  began <- proc.time()[[3L]]
  on.exit(if (!is.null(bar)) close(bar))
  tell <- function(done) {
    if (is.null(bar) && proc.time()[[3L]] - began > 2) bar <<- utils::txtProgressBar(style = 3L)
    if (!is.null(bar)) utils::setTxtProgressBar(bar, done)
  }
  .Call(C_ask, if (is.null(model)) FALSE else model$pointer, command, given_of(command, given), if (isTRUE(progress)) tell)
}

# The tables of an answer by their names: data frames, and of an array a list of the places of its axes. Attributes: the
# lengths of the axes by the names of their first columns, and the name of the first column of values, if there is one. x: the table that the
# question was about.
tables_of <- function(answer, x) {
  tables <- list()
  for (got in all_of(C_table, answer)) {
    columns <- stats::setNames(got[[3L]], got[[4L]])
    axes <- got[[5L]][1L, ]
    carried <- got[[5L]][2L, ] > 0L
    columns[carried] <- Map(function(rows, source) x[[source]][rows], columns[carried], got[[5L]][2L, carried])
    if (!got[[6L]]) columns <- structure(columns, class = "data.frame", row.names = .set_row_names(prod(got[[2L]])))
    attr(columns, "axes") <- stats::setNames(got[[2L]], got[[4L]][match(seq_along(got[[2L]]), axes)])
    attr(columns, "value") <- got[[4L]][match(0L, axes, nomatch = length(axes))]
    tables[[got[[1L]]]] <- columns
  }
  tables
}

lens <- function(model, command, ..., progress = interactive()) {
  is_model(model)
  answer_of(model, command, list(...), progress)
}

answer_of <- function(model, command, given, progress) {
  answer <- ask(model, command, given, progress)
  tables <- tables_of(answer, Find(is.data.frame, given))
  frames <- Filter(is.data.frame, tables)
  first <- names(frames)[min(length(frames), 1L + (names(frames)[1L] == "facts"))]
  structure(frames[[first]], class = c("attn_answer", "data.frame"), table = first, tables = tables,
            notes = as.character(all_of(C_note, answer)), answer = answer)
}

print.attn_answer <- function(x, n = 20L, ...) {
  print(utils::head(structure(x, class = "data.frame"), n), ...)
  if (nrow(x) > n) cat("and", nrow(x) - n, "rows more\n")
  say <- function(...) cat(strwrap(paste0(...), exdent = 2L), sep = "\n")
  is_frame <- vapply(attr(x, "tables"), is.data.frame, NA)
  if (any(is_frame)) say("tables: ", paste(names(which(is_frame)), collapse = ", "))
  if (!all(is_frame)) say("arrays: ", paste(names(which(!is_frame)), collapse = ", "))
  for (note in attr(x, "notes")) say("note: ", note)
  invisible(x)
}

# The picture of an answer, or another form of it, by the ending of the file's name.
plot.attn_answer <- function(x, file = tempfile(fileext = ".svg"), ...) {
  .Call(C_save, attr(x, "answer"), path.expand(one_text(file, "file")))
  if (missing(file) && interactive()) utils::browseURL(file)
  invisible(file)
}

as.array.attn_answer <- function(x, table = attr(x, "table"), column = NULL, ...) {
  tables <- attr(x, "tables")
  at <- match(one_text(table, "table"), names(tables))
  if (is.na(at)) refuse("table: expected ", paste0("\"", names(tables), "\"", collapse = " or "))
  of <- tables[[at]]
  if (is.null(column)) column <- attr(of, "value")
  axes <- attr(of, "axes")
  steps <- if (is.data.frame(of)) rev(cumprod(c(1, rev(axes)[-length(axes)]))) else 1
  places <- Map(function(name, n, step) of[[name]][seq.int(1L, by = step, length.out = n)], names(axes), axes, steps)
  values <- if (is.data.frame(of)) of[[column]] else .Call(C_tensor, attr(x, "answer"), at - 1L, match(column, names(of)) - 1L)
  aperm(array(values, rev(unname(axes)), rev(places)))
}

# The rows of an answer as a data frame; its notes are messages.
rows_of <- function(x) {
  for (note in attr(x, "notes")) message(note)
  attributes(x) <- list(names = names(x), class = "data.frame", row.names = .set_row_names(nrow(x)))
  x
}

surprisal <- function(model, x, by = NULL, column = NULL, ..., progress = interactive())
  rows_of(lens(model, "surprisal", x, by = by, column = column, ..., progress = progress))

suite <- function(model, file, by = NULL, ..., progress = interactive())
  rows_of(lens(model, "suite", file, by = by, ..., progress = progress))

word_vectors <- function(model, x, column = NULL, layer, ..., progress = interactive()) {
  name <- if (is.numeric(layer)) paste0("blocks.", layer, ".hook_resid_post") else layer
  got <- lens(model, "surprisal", x, column = column, vectors = one_text(name, "layer"), ..., progress = progress)
  rows_of(got)
  unname(as.array(got, "vectors"))
}

next_words <- function(model, context, n = 10L, bos = TRUE) {
  x <- lens(model, "tokens", one_text(context, "context"), top = whole(n, "n", 1, 1e6), bos = bos)
  top <- attr(x, "tables")$top
  last <- top$position == nrow(x) - 1
  data.frame(token = top$guess[last], probability = top$probability[last], stringsAsFactors = FALSE)
}

# Texts as strings of JSON.
json_of <- function(x, name) {
  x <- gsub("([\"\\\\])", "\\\\\\1", utf8_of(x, name))
  for (code in c(1:31, 127)) x <- gsub(intToUtf8(code), sprintf("\\u%04x", code), x, fixed = TRUE)
  paste0("\"", x, "\"")
}

log_prob <- function(model, context, continuation, bos = TRUE) {
  requests <- sprintf("{\"context\": %s, \"text\": %s}", json_of(context, "context"), json_of(continuation, "continuation"))
  got <- lens(model, "score", requests, bos = bos)
  if (any(!is.na(got$error))) refuse(got$error[!is.na(got$error)][1L])
  got$logprob
}

generate <- function(model, prompt, max_tokens = 100L, temperature = 0, top_k = 0, seed = NULL, bos = FALSE) {
  is_model(model)
  whole(max_tokens, "max_tokens", 1, 2^31)
  whole(top_k, "top_k", 0, model$config$n_vocab)
  if (!is.null(seed)) whole(seed, "seed", 0, 2^53)
  if (is.null(seed)) seed <- if (temperature > 0) sample.int(.Machine$integer.max, 1L) else 0
  if (!isTRUE(bos) && !isFALSE(bos)) refuse("bos: expected TRUE or FALSE")
  if (bos && model$config$bos < 0L) refuse("the model has no beginning-of-text token: give bos = FALSE")
  .Call(C_generate, model$pointer, one_text(prompt, "prompt"), as.double(c(bos, max_tokens, temperature, top_k, seed)))
}

attention <- function(model, text, bos = TRUE) {
  x <- lens(model, "patterns", one_text(text, "text"), bos = bos)
  got <- as.array(x, "patterns")
  names <- attr(x, "tables")$tokens$token
  dimnames(got) <- list(layer = NULL, head = NULL, query = names, key = names)
  got
}

attn_convert <- function(checkpoint, output, ..., progress = interactive()) {
  given <- list(model = checkpoint, output = output, ...)
  opposite <- vapply(given, isFALSE, NA)
  names(given)[opposite] <- paste0("no-", names(given)[opposite])
  given[opposite] <- TRUE
  rows_of(answer_of(NULL, "convert", given, progress))
  invisible(output)
}

# What an address leads to, from a byte on, block by block.
fetch <- function(address, begin, take) {
  key <- Sys.getenv("HF_TOKEN")
  headers <- c("User-Agent" = "attn", if (nzchar(key)) c(Authorization = paste("Bearer", key)),
               if (begin > 0) c(Range = sprintf("bytes=%.0f-", begin)))
  from <- url(address, "rb", method = "libcurl", headers = headers)
  on.exit(close(from))
  while (length(block <- readBin(from, raw(), 2^20))) take(block)
}

attn_download <- function(name, revision = "main", directory = NULL, progress = interactive()) {
  hub <- sub("/+$", "", Sys.getenv("HF_ENDPOINT", "https://huggingface.co"))
  if (!grepl("/", one_text(name, "name"))) name <- paste0(if (name == "distilgpt2") "distilbert/" else "openai-community/", name)
  revised <- utils::URLencode(one_text(revision, "revision"), reserved = TRUE)
  if (is.null(directory)) directory <- file.path(tools::R_user_dir("attn", "cache"), sub("/", "--", name), revised)
  listing <- raw()
  address <- sprintf("%s/api/models/%s/revision/%s?blobs=true", hub, name, revised)
  tryCatch(suppressWarnings(fetch(address, 0, function(block) listing <<- c(listing, block))), error = function(e)
    refuse(hub, " does not give out ", name, " with the revision ", revision, " (", conditionMessage(e), "): is there a network, and such ",
           "a name? The environment variable HF_ENDPOINT names a mirror, HF_TOKEN has the key of what is not public"))
  dir.create(directory, FALSE, TRUE)
  why <- ""
  for (attempt in 0:4) {
    got <- answer_of(NULL, "checkpoint", list(listing = rawToChar(listing), folder = directory), FALSE)
    tables <- attr(got, "tables")
    files <- tables$files[!tables$files$complete, ]
    if (!nrow(files)) return(directory)
    why <- c(attr(got, "notes"), why)[1L]
    for (i in if (attempt < 4L) seq_len(nrow(files))) {
      if (isTRUE(progress)) message(files$file[i], ": ", round((files$bytes[i] - files$here[i]) / 1e6, 1L), " MB")
      part <- file(file.path(directory, paste0(files$file[i], ".part")), if (files$here[i] > 0) "ab" else "wb")
      commit <- c(stats::na.omit(tables$facts$commit), revised)[1L]
      tryCatch(suppressWarnings(fetch(sprintf("%s/%s/resolve/%s/%s", hub, name, commit, files$file[i]), files$here[i],
                                      function(block) writeBin(block, part))),
               error = function(e) why <<- conditionMessage(e), finally = close(part))
    }
  }
  refuse(files$file[1L], " did not arrive whole (", why, "). Call attn_download again: it goes on from there, in ", directory)
}
