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
  if (!inherits(model, "attn_model")) refuse("model: expected what attn_model() returns")
}

# An error in words that need no call beside them.
refuse <- function(...) stop(..., call. = FALSE)

note <- function(which, words) {
  if (any(which)) message(sprintf("%d of %d texts %s", sum(which), length(which), words))
}

# One whole number from `least` to `most`.
whole <- function(x, name, least, most) {
  if (!is.numeric(x) || length(x) != 1L || is.na(x) || x != floor(x) || x < least || x > most)
    refuse(sprintf("%s: expected a whole number from %.0f to %.0f", name, least, most))
  x
}

one_text <- function(x, name) {
  if (!is.character(x) || length(x) != 1L || is.na(x)) refuse(name, ": expected one text")
  enc2utf8(x)
}

check_bos <- function(model, bos) {
  if (bos && model$config$bos < 0L) refuse("the model has no beginning-of-text token: give bos = FALSE")
}

ids_of <- function(model, text, name, bos) {
  check_bos(model, bos)
  c(if (bos) model$config$bos, .Call(C_encode, model$pointer, one_text(text, name))[[1L]])
}

# What the model says at each position of a text, from 0 to its number of tokens, in nats.
positions <- function(model, ids, bos, stride, top) {
  n <- length(ids)
  room <- model$config$n_ctx - bos
  result <- list(at = matrix(NA_real_, 4L, n + 1L, dimnames = list(c("nll", "entropy", "ends", "rank"), NULL)),
                 best = matrix(NA_integer_, top, n + 1L), chances = matrix(NA_real_, top, n + 1L))
  known <- 0L
  while (known <= n) {
    start <- if (known) known - stride else 0L
    window <- ids[seq_len(min(n - start, room)) + start]
    end <- start + length(window)
    first <- max(known, start + 1L - bos)
    kinds <- c(model$begins, model$ends, bos && start == 0L)
    fed <- c(if (bos) model$config$bos, window, if (end < n) ids[end + 1L] else -1L)
    got <- .Call(C_read, model$pointer, as.integer(fed), as.integer(first - start - 1L + bos), kinds, as.integer(top))
    columns <- seq(first, end) + 1L
    for (i in 1:3) result[[i]][, columns] <- got[[i]]
    known <- end + 1L
  }
  result
}

# Blanks, tabs and line feeds part words; a no-break space does not.
words_of <- function(text) {
  words <- strsplit(text, "[ \t\r\n\f\v]+")[[1L]]
  words[nzchar(words)]
}

# The words of a text, and the number of the region of each. Words that the mark joins are a region.
divide <- function(text, mark) {
  chunks <- words_of(text)
  parts <- if (is.null(mark)) as.list(chunks) else strsplit(chunks, mark, fixed = TRUE)
  parts <- lapply(parts, function(x) x[nzchar(x)])
  parts <- parts[lengths(parts) > 0L]
  list(words = as.character(unlist(parts)), region = rep(seq_along(parts), lengths(parts)))
}

# The rows of a text, as a list of columns.
of_text <- function(model, text, number, how, names_of_regions) {
  divided <- divide(text, how$mark)
  words <- divided$words
  if (!length(words)) return(NULL)
  encoded <- .Call(C_encode, model$pointer, paste(words, collapse = " "))
  ids <- encoded[[1L]]
  read <- positions(model, ids, how$bos, how$stride, how$top)
  begins <- c(0, cumsum(nchar(words, "bytes") + 1) - 1)
  first <- findInterval(begins, cumsum(c(0, encoded[[2L]])), left.open = TRUE) # tokens before each word
  region <- divided$region
  label <- region
  if (!is.null(names_of_regions)) {
    names <- words_of(names_of_regions)
    if (length(names) != max(region))
      refuse(sprintf("region_names: text %d has %d names for %d regions", number, length(names), max(region)))
    label <- names[region]
  }
  # the first word of each row; without a mark each word has a name, and equal neighbours are one region
  joined <- if (is.null(names_of_regions) || !is.null(how$mark)) region else label
  head <- if (how$by == "region") which(c(TRUE, joined[-1L] != joined[-length(joined)])) else seq_along(words)
  last <- c(head[-1L] - 1L, length(words))
  shown <- if (how$by == "token") rep(seq_along(words), diff(first)) else seq_along(head)
  from <- first[head][shown]
  to <- first[last + 1L][shown]
  tokens <- to - from
  open <- rep(TRUE, length(shown))
  close <- open
  if (how$by == "token") {
    from <- seq_along(ids) - 1L
    open <- !duplicated(shown)
    close <- !duplicated(shown, fromLast = TRUE)
    to <- from + 1L
  }
  uncorrected <- mapply(function(a, b) sum(read$at["nll", seq(a, b)]), from + 1L, to)
  surprisal <- uncorrected + ifelse(open, read$at["ends", from + 1L], 0) - ifelse(close, read$at["ends", to + 1L], 0)
  spelled <- mapply(function(a, b) paste(words[a:b], collapse = " "), head, last)
  columns <- list(text = rep(number, length(shown)), index = (if (how$by == "region") region[head] else head)[shown],
                  word = spelled[shown], tokens = tokens, surprisal = surprisal / how$unit,
                  uncorrected = uncorrected / how$unit, entropy = read$at["entropy", from + 1L] / how$unit)
  if (how$by == "token") {
    columns$token <- .Call(C_decode, model$pointer, ids)
    columns$token_id <- ids
  }
  if (how$has_regions) columns$region <- label[head][shown]
  if (how$rank) columns$rank <- read$at["rank", from + 1L]
  for (i in seq_len(how$top)) {
    best <- read$best[i, from + 1L]
    token <- rep(NA_character_, length(best))
    token[!is.na(best)] <- .Call(C_decode, model$pointer, best[!is.na(best)])
    columns[[paste0("top", i)]] <- token
    columns[[paste0("top", i, "_probability")]] <- read$chances[i, from + 1L]
  }
  columns
}

surprisal <- function(model, x, by = c("word", "token", "region"), column = NULL, unit = c("bits", "nats"),
                      regions = NULL, region_names = NULL, rank = FALSE, top = 0, bos = TRUE, stride = NULL,
                      progress = interactive()) {
  is_model(model)
  check_bos(model, bos)
  how <- list(by = match.arg(by), unit = if (match.arg(unit) == "bits") log(2) else 1, mark = regions, bos = bos,
              rank = rank, top = whole(top, "top", 0, min(1000, model$config$n_vocab)),
              has_regions = !is.null(regions) || !is.null(region_names))
  room <- model$config$n_ctx - bos
  how$stride <- if (is.null(stride)) min(512L, room %/% 2L) else whole(stride, "stride", 1, room)
  if (all(model$begins)) refuse("no token of the vocabulary begins with a blank, so nothing says where a word ends")
  if (!is.null(regions) && (!is.character(regions) || length(regions) != 1L || !grepl("^[^ \t\r\n\f\v]+$", regions)))
    refuse("regions: expected a mark without blanks, such as \"_\"")
  if (how$by == "region" && !how$has_regions) refuse("by = \"region\" needs regions or region_names")
  texts <- if (is.factor(x)) as.character(x) else x
  if (is.data.frame(x)) {
    texts <- column_of(x, column, "column")
    names_of_regions <- if (!is.null(region_names)) column_of(x, region_names, "region_names")
  } else if (!is.null(region_names)) refuse("region_names: expected a data frame, and the name of a column in it")
  if (!is.character(texts)) refuse("x: expected texts, or a data frame and the name of their column")
  if (anyNA(texts)) refuse("x: text ", which(is.na(texts))[1L], " is NA")
  texts <- enc2utf8(texts)
  if (progress && length(texts) > 1L) {
    bar <- utils::txtProgressBar(max = length(texts), style = 3L)
    on.exit(close(bar))
  }
  rows <- lapply(seq_along(texts), function(i) {
    row <- of_text(model, texts[i], i, how, if (!is.null(region_names)) names_of_regions[i])
    if (progress && length(texts) > 1L) utils::setTxtProgressBar(bar, i)
    row
  })
  empty <- vapply(rows, is.null, NA)
  note(empty, "have no words, and so no rows")
  note(grepl("\u00a0", texts, fixed = TRUE), "have no-break spaces, which do not part words")
  rows <- rows[!empty]
  if (!length(rows)) return(no_rows)
  columns <- lapply(names(rows[[1L]]), function(name) unlist(lapply(rows, `[[`, name)))
  names(columns) <- names(rows[[1L]])
  result <- data.frame(columns, stringsAsFactors = FALSE, check.names = FALSE)
  if (is.data.frame(x)) {
    others <- x[result$text, setdiff(names(x), column), drop = FALSE]
    same <- names(others) %in% names(result)
    names(others)[same] <- paste0("input_", names(others)[same])
    result <- cbind(result, others)
    rownames(result) <- NULL
  }
  result
}

no_rows <- data.frame(text = integer(), index = integer(), word = character(), tokens = integer(),
                      surprisal = double(), uncorrected = double(), entropy = double(), stringsAsFactors = FALSE)

# The texts of a column, given by its name.
column_of <- function(x, name, argument) {
  found <- if (is.character(name) && length(name) == 1L) sum(names(x) == name, na.rm = TRUE) else 0L
  if (found == 0L)
    refuse(argument, ": expected one of the data frame's columns, which are ", paste(names(x), collapse = ", "))
  if (found > 1L) refuse(argument, ": ", found, " columns are called ", name, "; give each a name of its own")
  as.character(x[[name]])
}

next_words <- function(model, context, n = 10L, bos = TRUE) {
  is_model(model)
  whole(n, "n", 1, model$config$n_vocab)
  ids <- ids_of(model, context, "context", bos)
  check_room(model, ids)
  got <- .Call(C_read, model$pointer, c(ids, -1L), length(ids) - 1L, c(model$begins, model$ends, FALSE), as.integer(n))
  data.frame(token = .Call(C_decode, model$pointer, got[[2L]]), probability = as.vector(got[[3L]]),
             stringsAsFactors = FALSE)
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
    got <- .Call(C_read, model$pointer, c(before, after, -1L), length(before) - 1L,
                 c(model$begins, model$ends, FALSE), 0L)[[1L]]
    -sum(got[1L, seq_along(after)])
  }
  mapply(one, context, continuation, USE.NAMES = FALSE)
}

generate <- function(model, prompt, max_tokens = 50L, temperature = 0, top_k = 0, seed = NULL, bos = FALSE) {
  is_model(model)
  whole(max_tokens, "max_tokens", 1, 2^31)
  whole(top_k, "top_k", 0, model$config$n_vocab)
  if (!is.null(seed)) whole(seed, "seed", 0, 2^53)
  if (!is.numeric(temperature) || length(temperature) != 1L || !is.finite(temperature) || temperature < 0)
    refuse("temperature: expected a number from 0 on")
  if (is.null(seed)) seed <- if (temperature > 0) sample.int(.Machine$integer.max, 1L) else 0
  .Call(C_generate, model$pointer, ids_of(model, prompt, "prompt", bos),
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
