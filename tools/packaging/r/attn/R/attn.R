# The included model: a tiny one that knows children's stories.
included <- function() system.file("extdata", "tiny-stories.attn", package = "attn")

attn_model <- function(path = included(), threads = 2L) {
  if (!is.character(path) || length(path) != 1L || is.na(path))
    refuse("path: expected the name of one .attn file")
  if (length(threads) != 1L || is.na(threads) || threads < 0 || threads > 256 || threads %% 1 != 0)
    refuse("threads: expected a whole number from 1 to 256, or 0 for all processors")
  pointer <- .Call(C_open, path, as.integer(threads))
  config <- as.list(.Call(C_config, pointer))
  names(config) <- c("n_ctx", "n_vocab", "n_layer", "n_head", "bos", "eos")
  structure(list(pointer = pointer, path = path, config = config), class = "attn_model")
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
  x
}

check_bos <- function(model, bos) {
  if (bos && model$config$bos < 0L) refuse("the model has no beginning-of-text token: give bos = FALSE")
}

ids_of <- function(model, text, name, bos) {
  check_bos(model, bos)
  c(if (bos) model$config$bos, .Call(C_encode, model$pointer, one_text(text, name), name))
}

# The number of a choice, from 0. hint: what to add for a wrong one.
choice <- function(x, name, choices, hint = "") {
  if (identical(x, choices)) return(0L)
  found <- if (is.character(x) && length(x) == 1L) pmatch(x, choices) else NA
  if (is.na(found))
    refuse(name, ": expected ", paste0("\"", choices, "\"", collapse = " or "), hint)
  found - 1L
}

# One text, or NA for NULL.
given <- function(x, name, expected) {
  if (is.null(x)) return(NA_character_)
  if (!is.character(x) || length(x) != 1L || is.na(x)) refuse(name, ": expected ", expected)
  x
}

flag <- function(x, name) {
  if (!is.logical(x) || length(x) != 1L || is.na(x)) refuse(name, ": expected TRUE or FALSE")
  x
}

# The order of a Renyi entropy, 0 for none. The C code knows which orders there are.
order_of <- function(x) {
  if (is.null(x)) return(0)
  if (!is.numeric(x) || length(x) != 1L || is.na(x) || x <= 0) refuse("renyi: expected a number from 0.01 to 100")
  x
}

# The texts of a vector or of a column, of which messages say `name`.
texts_of <- function(x, name, expected = "texts") {
  if (is.factor(x) || is.numeric(x) && name != "x") x <- as.character(x)
  if (!is.character(x)) refuse(name, ": expected ", expected)
  if (anyNA(x)) refuse(name, ": text ", which(is.na(x))[1L], " is NA")
  x
}

# The rows of texts, or (vectors: the name of an activation) their vectors.
measured <- function(model, x, by, column, unit, regions, region_names, rank, top, bos, stride, punctuation, continues, layers,
                     entropy_reduction, renyi, spillover, progress, tuned = NULL, vectors = NULL, pooling = 0L) {
  is_model(model)
  hint <- if (is.data.frame(x) && is.character(by) && length(by) == 1L && by %in% names(x))
    sprintf("; did you mean column = \"%s\"?", by) else ""
  numbers <- c(choice(by, "by", c("word", "token", "region"), hint), choice(unit, "unit", c("bits", "nats")),
               choice(punctuation, "punctuation", c("word", "apart")), flag(continues, "continues"), !flag(bos, "bos"),
               flag(rank, "rank"), flag(entropy_reduction, "entropy_reduction"), !is.null(stride), !is.null(renyi), pooling,
               FALSE, FALSE, whole(top, "top", 0, 1000), if (is.null(stride)) 0 else whole(stride, "stride", 1, 1e9),
               whole(spillover, "spillover", 0, 100), order_of(renyi))
  words <- c(given(column, "column", "the name of a column"), given(regions, "regions", "a mark such as \"_\""),
             given(region_names, "region_names", "the name of a column"),
             given(if (is.numeric(layers)) paste(layers, collapse = ",") else layers, "layers", "\"all\" or numbers of layers"),
             given(vectors, "layer", "the number of a layer or the name of an activation"),
             given(tuned, "tuned", "the name of one .safetensors file"), NA, NA)
  if (!is.data.frame(x)) x <- texts_of(x, "x", "texts, or a data frame and the name of their column")
  begun <- .Call(C_surprisal, model$pointer, if (is.data.frame(x)) names(x), words, as.double(numbers))
  run <- begun[[1L]]
  on.exit(.Call(C_surprisal_free, run))
  texts <- if (is.data.frame(x)) texts_of(x[[begun[[2L]][1L]]], column) else x
  lists <- if (!is.null(region_names)) texts_of(x[[begun[[2L]][2L]]], region_names)
  read_all(run, .Call(C_surprisal_read, run, texts, lists), progress)
  if (!is.null(vectors)) return(.Call(C_surprisal_vectors, run))
  got <- .Call(C_surprisal_columns, run)
  names <- names(got[[1L]])
  carried <- got[[2L]] > 0L
  result <- got[[1L]][!carried]
  if (any(carried)) result <- c(result, unclass(x[result$text, got[[2L]][carried], drop = FALSE]))
  attributes(result) <- list(names = names, class = "data.frame", row.names = .set_row_names(length(result$text)))
  result
}

# Tells the notes of a run that has its texts, and ends it.
read_all <- function(run, notes, progress) {
  if (nzchar(notes)) message(notes, appendLF = FALSE)
  if (progress) bar <- utils::txtProgressBar(style = 3L)
  done <- 0
  while (done < 1) {
    done <- .Call(C_surprisal_pass, run)
    if (progress) utils::setTxtProgressBar(bar, done)
  }
  if (progress) close(bar)
}

suite <- function(model, file, by = c("prediction", "region"), corrected = FALSE, pair = NULL, group = NULL,
                  progress = interactive()) {
  is_model(model)
  numbers <- c(if (choice(by, "by", c("prediction", "region")) == 1L) 2 else 0, rep(0, 9L), TRUE, flag(corrected, "corrected"), rep(0, 4L))
  words <- c(rep(NA_character_, 6L), given(pair, "pair", "two names of columns, as \"better,worse\""),
             given(group, "group", "the name of a column"))
  run <- .Call(C_surprisal, model$pointer, NULL, words, as.double(numbers))[[1L]]
  on.exit(.Call(C_surprisal_free, run))
  read_all(run, .Call(C_surprisal_suite, run, one_text(file, "file")), progress)
  as.data.frame(.Call(C_surprisal_columns, run)[[1L]], optional = TRUE, stringsAsFactors = FALSE)
}

surprisal <- function(model, x, by = c("word", "token", "region"), column = NULL, unit = c("bits", "nats"),
                      regions = NULL, region_names = NULL, rank = FALSE, top = 0, bos = TRUE, stride = NULL,
                      punctuation = c("word", "apart"), continues = FALSE, layers = NULL, entropy_reduction = FALSE,
                      renyi = NULL, spillover = 0, progress = interactive(), tuned = NULL)
  measured(model, x, by, column, unit, regions, region_names, rank, top, bos, stride, punctuation, continues, layers,
           entropy_reduction, renyi, spillover, progress, tuned)

word_vectors <- function(model, x, column = NULL, layer, pooling = c("mean", "first", "last"), by = c("word", "token", "region"),
                         regions = NULL, region_names = NULL, bos = TRUE, stride = NULL, punctuation = c("word", "apart"),
                         continues = FALSE, progress = interactive()) {
  name <- if (is.null(layer)) NA else if (is.numeric(layer)) paste0("blocks.", layer, ".hook_resid_post") else layer
  measured(model, x, by, column, "bits", regions, region_names, FALSE, 0, bos, stride, punctuation, continues, NULL, FALSE, NULL, 0,
           progress, NULL, name, choice(pooling, "pooling", c("mean", "first", "last")))
}

next_words <- function(model, context, n = 10L, bos = TRUE) {
  is_model(model)
  whole(n, "n", 1, model$config$n_vocab)
  ids <- ids_of(model, context, "context", bos)
  check_room(model, ids)
  got <- .Call(C_score, model$pointer, ids, as.integer(n))
  data.frame(token = .Call(C_decode, model$pointer, got[[2L]]), probability = got[[3L]], stringsAsFactors = FALSE)
}

# Refuses a text that the context does not hold, and one without tokens.
check_room <- function(model, ids) {
  if (!length(ids)) refuse("the text is empty: without bos it must have at least one token")
  if (length(ids) > model$config$n_ctx)
    refuse(sprintf("the text has %d tokens, but the context holds %d", length(ids), model$config$n_ctx))
}

log_prob <- function(model, context, continuation, bos = TRUE) {
  is_model(model)
  one <- function(context, continuation) {
    before <- ids_of(model, context, "context", bos)
    after <- ids_of(model, continuation, "continuation", FALSE)
    if (!length(before)) refuse("context: without bos it must have at least one token")
    check_room(model, c(before, after))
    losses <- .Call(C_score, model$pointer, c(before, after), 0L)[[1L]]
    -sum(losses[length(before) - 1L + seq_along(after)])
  }
  mapply(one, context, continuation, USE.NAMES = FALSE)
}

generate <- function(model, prompt, max_tokens = 100L, temperature = 0, top_k = 0, seed = NULL, bos = FALSE) {
  is_model(model)
  whole(max_tokens, "max_tokens", 1, 2^31)
  whole(top_k, "top_k", 0, model$config$n_vocab)
  if (!is.null(seed)) whole(seed, "seed", 0, 2^53)
  if (!is.numeric(temperature) || length(temperature) != 1L || !is.finite(temperature) || temperature < 0)
    refuse("temperature: expected a number from 0 on")
  ids <- ids_of(model, prompt, "prompt", bos)
  if (!length(ids)) refuse("prompt: without bos it must have at least one token")
  check_room(model, ids)
  if (is.null(seed)) seed <- if (temperature > 0) sample.int(.Machine$integer.max, 1L) else 0
  .Call(C_generate, model$pointer, ids,
        as.double(c(max_tokens, temperature, top_k, seed)))
}

attention <- function(model, text, bos = TRUE) {
  is_model(model)
  ids <- ids_of(model, text, "text", bos)
  check_room(model, ids)
  names <- .Call(C_decode, model$pointer, ids)
  array(.Call(C_attention, model$pointer, ids), c(model$config$n_layer, model$config$n_head, length(ids), length(ids)),
        list(layer = NULL, head = NULL, query = names, key = names))
}
