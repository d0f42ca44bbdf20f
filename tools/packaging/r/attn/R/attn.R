# The included model: a tiny one that knows children's stories.
included <- function() system.file("extdata", "tiny-stories.attn", package = "attn")

attn_model <- function(path = included(), threads = 0L) {
  if (!is.character(path) || length(path) != 1L || is.na(path))
    stop("path: expected the name of one .attn file")
  pointer <- .Call(C_open, path, as.integer(threads))
  config <- as.list(.Call(C_config, pointer))
  names(config) <- c("n_ctx", "n_vocab", "n_layer", "n_head", "bos", "eos")
  kinds <- .Call(C_kinds, pointer)
  structure(list(pointer = pointer, path = path, config = config,
                 begins = !kinds[, 1L], ends = kinds[, 1L] | kinds[, 2L]), class = "attn_model")
}

print.attn_model <- function(x, ...) {
  cat(sprintf("<attn_model %s: %d layers of %d heads, %d tokens, context of %d>\n", basename(x$path),
              x$config$n_layer, x$config$n_head, x$config$n_vocab, x$config$n_ctx))
  invisible(x)
}

is_model <- function(model) {
  if (!inherits(model, "attn_model")) stop("model: expected what attn_model() returns")
}

ids_of <- function(model, text, bos) {
  ids <- .Call(C_encode, model$pointer, enc2utf8(text))[[1L]]
  if (bos && model$config$bos < 0L)
    stop("the model has no beginning-of-text token: give bos = FALSE")
  if (bos) c(model$config$bos, ids) else ids
}

# What the model says at each position of a text, from 0 to its number of tokens: in nats.
positions <- function(model, ids, bos, stride) {
  n <- length(ids)
  room <- model$config$n_ctx - bos
  if (is.null(stride)) stride <- min(512L, room %/% 2L)
  if (stride < 1 || stride > room) stop(sprintf("stride is %d; expected 1 to %d", as.integer(stride), room))
  result <- matrix(NA_real_, 3L, n + 1L, dimnames = list(c("nll", "entropy", "ends"), NULL))
  known <- 0L
  while (known <= n) {
    start <- if (known) known - stride else 0L
    window <- ids[seq_len(min(n - start, room)) + start]
    end <- start + length(window)
    first <- max(known, start + 1L - bos)
    kinds <- c(model$begins, model$ends, bos && start == 0L)
    result[, seq(first, end) + 1L] <-
      .Call(C_read, model$pointer, as.integer(c(if (bos) model$config$bos, window, if (end < n) ids[end + 1L] else -1L)),
            as.integer(first - start - 1L + bos), kinds)
    known <- end + 1L
  }
  result
}

words_of <- function(text) {
  words <- strsplit(text, "[ \t\r\n\f\v]+")[[1L]]
  words[nzchar(words)]
}

of_text <- function(model, text, number, by, bos, stride, unit) {
  words <- words_of(enc2utf8(text))
  if (!length(words)) return(NULL)
  encoded <- .Call(C_encode, model$pointer, paste(words, collapse = " "))
  ids <- encoded[[1L]]
  at <- positions(model, ids, bos, stride)
  begins <- c(0, cumsum(nchar(words, "bytes") + 1) - 1)
  first <- findInterval(begins, cumsum(c(0, encoded[[2L]])), left.open = TRUE)
  tokens <- diff(first)
  word <- rep(seq_along(words), tokens)
  losses <- at["nll", seq_along(ids)]
  ends <- at["ends", first + 1L]
  share <- losses
  opens <- first[-length(first)] + 1L
  share[opens] <- share[opens] + ends[-length(ends)]
  closes <- first[-1L]
  share[closes] <- share[closes] - ends[-1L]
  token <- if (by == "token") seq_along(ids) else opens
  sums <- function(x) if (by == "token") x else as.vector(rowsum(x, word))
  shown <- if (by == "token") word else seq_along(words)
  result <- data.frame(text = number, index = shown, word = words[shown], tokens = tokens[shown],
                       surprisal = sums(share) / unit, uncorrected = sums(losses) / unit,
                       entropy = at["entropy", token] / unit, stringsAsFactors = FALSE)
  if (by == "token") result$token <- .Call(C_decode, model$pointer, ids)
  result
}

surprisal <- function(model, x, by = c("word", "token"), column = NULL, unit = c("bits", "nats"), bos = TRUE,
                      stride = NULL) {
  is_model(model)
  by <- match.arg(by)
  unit <- if (match.arg(unit) == "bits") log(2) else 1
  if (bos && model$config$bos < 0L) stop("the model has no beginning-of-text token: give bos = FALSE")
  if (!any(!model$begins)) stop("no token of the vocabulary begins with a blank, so nothing says where a word ends")
  texts <- x
  if (is.data.frame(x)) {
    if (is.null(column) || !column %in% names(x))
      stop("column: the data frame has the columns ", paste(names(x), collapse = ", "))
    texts <- as.character(x[[column]])
  }
  if (!is.character(texts)) stop("x: expected texts, or a data frame and the name of their column")
  if (anyNA(texts)) stop("x: text ", which(is.na(texts))[1L], " is NA")
  rows <- lapply(seq_along(texts), function(i) of_text(model, texts[i], i, by, bos, stride, unit))
  result <- do.call(rbind, rows)
  if (is.data.frame(x) && !is.null(result)) {
    others <- x[result$text, setdiff(names(x), column), drop = FALSE]
    same <- names(others) %in% names(result)
    names(others)[same] <- paste0("input_", names(others)[same])
    result <- cbind(result, others)
    rownames(result) <- NULL
  }
  result
}

next_words <- function(model, context, n = 10L, bos = TRUE) {
  is_model(model)
  if (n < 1 || n > model$config$n_vocab) stop(sprintf("n: expected 1 to %d", model$config$n_vocab))
  got <- .Call(C_next, model$pointer, ids_of(model, context, bos), as.integer(n))
  data.frame(token = .Call(C_decode, model$pointer, got[[1L]]), probability = got[[2L]], stringsAsFactors = FALSE)
}

log_prob <- function(model, context, continuation, bos = TRUE) {
  is_model(model)
  one <- function(context, continuation) {
    before <- ids_of(model, context, bos)
    after <- ids_of(model, continuation, FALSE)
    if (!length(before)) stop("context: without bos it must have at least one token")
    if (length(before) + length(after) > model$config$n_ctx)
      stop(sprintf("the text has %d tokens, but the context holds %d", length(before) + length(after),
                   model$config$n_ctx))
    got <- .Call(C_read, model$pointer, as.integer(c(before, after, -1L)), length(before) - 1L,
                 c(model$begins, model$ends, FALSE))
    -sum(got[1L, seq_along(after)])
  }
  mapply(one, context, continuation, USE.NAMES = FALSE)
}

generate <- function(model, prompt, max_tokens = 50L, temperature = 0, top_k = 0, seed = 1, bos = FALSE) {
  is_model(model)
  .Call(C_generate, model$pointer, ids_of(model, prompt, bos), as.double(c(max_tokens, temperature, top_k, seed)))
}

attention <- function(model, text, bos = TRUE) {
  is_model(model)
  ids <- ids_of(model, text, bos)
  names <- .Call(C_decode, model$pointer, ids)
  array(.Call(C_attention, model$pointer, ids), c(model$config$n_layer, model$config$n_head, length(ids), length(ids)),
        list(layer = NULL, head = NULL, query = names, key = names))
}
