library(attn)
long <- paste(rep("The cat sat on the mat.", 60), collapse = " ")

# One thread is one thread, however many processors there are. (This comes before calls on two.)
if (dir.exists("/proc/self/task")) {
  tasks <- function() length(list.files("/proc/self/task"))
  before <- tasks()
  one <- attn_model(threads = 1)
  invisible(surprisal(one, long, stride = 200))
  invisible(generate(one, "Once", 20))
  stopifnot(tasks() == before)
}

model <- attn_model()

# as tools/surprisal prints them for the same model
compare <- function(got, file) {
  expected <- read.csv(file, na.strings = NULL)
  stopifnot(identical(names(got), names(expected)), nrow(got) == nrow(expected))
  for (column in names(got)) stopifnot(as.character(got[[column]]) == as.character(expected[[column]]))
}
compare(suppressMessages(surprisal(model, readLines("texts.txt", encoding = "UTF-8"))), "expected.csv")
items <- read.csv("items.csv", na.strings = NULL)
compare(suppressMessages(surprisal(model, items, "region", "s", rank = TRUE, top = 2, regions = "_")), "marked.csv")
compare(suppressMessages(surprisal(model, read.csv("words.csv", na.strings = NULL), "token", "s", unit = "nats", region_names = "n")),
        "named.csv")
stopifnot(identical(names(suppressMessages(surprisal(model, " "))), names(surprisal(model, "a"))))
said <- character()
invisible(withCallingHandlers(surprisal(model, c("a", "", "a\u00a0b")), message = function(m) {
  said <<- c(said, conditionMessage(m))
  invokeRestart("muffleMessage")
}))
stopifnot(grepl("1 of 3 texts have no words", said[1]), grepl("1 of 3 texts have no-break spaces", said[2]))

stopifnot(identical(surprisal(model, factor(c("a b", "c"))), surprisal(model, c("a b", "c"))))

everything <- next_words(model, "Once upon a", model$config$n_vocab)
stopifnot(nrow(everything) == model$config$n_vocab, abs(sum(everything$probability) - 1) < 1e-4, "\u2400" %in% everything$token)

# shapes of tables
stopifnot(identical(dim(surprisal(model, "Once")), c(1L, 7L)), identical(rownames(surprisal(model, "Once")), "1"))
twice <- cbind(data.frame(note = 1:2, s = c("a b", "c")), note = c("x", "y"), text = c(TRUE, NA), input_text = factor(c("u", "v")))
twice <- surprisal(model, twice, column = "s")
stopifnot(identical(names(twice)[8:11], c("note", "input_note", "input_input_text", "input_text")), twice$note == c(1, 1, 2),
          twice$input_note == c("x", "x", "y"), is.logical(twice$input_input_text), is.factor(twice$input_text))
stopifnot(identical(nrow(surprisal(model, character())), 0L))

# rows as those of surprisal()
sentences <- c("Once  upon a time.", "", "The dog's bone \U0001F600.")
vectors <- suppressMessages(word_vectors(model, sentences, layer = 3))
stopifnot(identical(dim(vectors), c(nrow(suppressMessages(surprisal(model, sentences))), 192L)), all(is.finite(vectors)))
table <- data.frame(item = 1, s = "The cat")
stopifnot(identical(word_vectors(model, table, "s", 0), word_vectors(model, "The cat", layer = "blocks.0.hook_resid_post")))
stopifnot(identical(dim(word_vectors(model, character(), layer = 0)), c(0L, 192L)))

likely <- next_words(model, "Once upon a", 2)
stopifnot(likely$token[1] == " time",
          all.equal(likely$probability[1], exp(log_prob(model, "Once upon a", " time")), tolerance = 1e-5))
stopifnot(identical(generate(model, "Once upon a time", 12), ", there was a little girl named Lily. She loved to"))
pattern <- attention(model, "Once upon a")
stopifnot(identical(dim(pattern), c(4L, 6L, 4L, 4L)),
          all.equal(unname(apply(pattern, 1:3, sum)), array(1, c(4, 6, 4)), tolerance = 1e-5))

fails <- function(code, words) {
  said <- tryCatch({code; "nothing"}, error = conditionMessage)
  if (!grepl(words, said, fixed = TRUE)) stop("said ", said)
}

# questions: every kind of value that crosses
clean <- "Tom was a boy. He"
x <- lens(model, "patch", clean, "Tom was a girl. He", by = "heads")
facts <- attr(x, "tables")$facts
stopifnot(identical(names(x), c("activation", "layer", "head", "answer")), nrow(x) == 24, is.character(x$activation),
          identical(x$head, rep(0:5, 4)), is.double(x$answer), identical(names(dim(as.array(x))), NULL),
          identical(as.array(x)["attn.hook_z", "2", "5"], x$answer[18]), isTRUE(facts$gap_is_small),
          all.equal(facts$gap, facts$clean - facts$corrupted), grepl("a gap of", attr(x, "notes")[1]))
ids <- lens(model, "tokens", c(464, 995), top = 0)
stopifnot(identical(ids$token_id, c(464L, 995L)), identical(is.na(ids$loss), c(TRUE, FALSE)), is.integer(ids$rank))
tokens <- lens(model, "tokens", "\u00fc \U0001F600", bos = TRUE)
stopifnot(tokens$token[1] == "<|endoftext|>", validUTF8(tokens$token), Encoding(tokens$token[2]) == "UTF-8")
r <- lens(model, "record", clean, c("blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre"))
pattern <- as.array(r, "blocks.0.attn.hook_pattern")
stopifnot(identical(r$shape, c("[6, 6, 6]", "[6, 192]")), identical(names(dimnames(pattern)), c("head", "query", "key")),
          all.equal(unname(apply(pattern, 1:2, sum)), matrix(1, 6, 6), tolerance = 1e-5), pattern["3", "0", "1"] == 0)
shown <- capture.output(print(x, n = 3), print(r))
stopifnot("and 21 rows more" %in% shown, "tables: facts, heads" %in% shown, any(grepl("^note: logit of", shown)),
          any(grepl("^arrays: blocks.0.attn.hook_pattern", shown)))
picture <- plot(x)
stopifnot(grepl("^<svg", readLines(picture)[1]), file.exists(plot(x, file.path(tempdir(), "a.html"))))
fails(plot(x, "a.jpg"), "must end in .html, .svg")
fails(plot(unserialize(serialize(x, NULL))), "the answer is closed")
fails(as.array(x, "edges"), "table: expected \"facts\" or \"heads\"")
by <- lens_settings("patch")
by <- by[by$setting == "by", ]
stopifnot(by$kind == "choice", grepl("heads", by$takes), by$word == 0)

# every command answers, or says what it needs
file <- tempfile(fileext = ".csv")
writeLines(c("a,b", "The dog was big.,The dog were big."), file)
given <- list(tokens = clean, loss = clean, "logit-lens" = clean, patterns = clean, patch = c(clean, "Tom was a girl. He"),
              path = c(clean, "Tom was a girl. He"), edges = c(clean, "Tom was a girl. He"), attribute = clean, decompose = clean,
              ablate = clean, heads = clean, circuits = NULL, qk = list(clean, layer = 1, head = 2),
              steer = list(clean, towards = "so happy", away = "so sad"), gradients = c(clean, "*hook_resid_pre"),
              pairs = list("pronouns", count = 5), process = list(output = tempfile(fileext = ".attn")), record = c(clean, "*hook_z"),
              surprisal = clean, suite = list(file, pair = "a,b"), score = "{\"text\": \"Once\"}")
for (command in setdiff(lens_commands()$command, names(given)))
  stopifnot(is.character(tryCatch(lens(model, command), error = conditionMessage)))
for (command in names(given)) {
  x <- do.call(lens, c(list(model, command), as.list(given[[command]])))
  tables <- attr(x, "tables")
  stopifnot(inherits(x, "data.frame"), length(x) > 0, nrow(x) > 0, all(nzchar(names(tables))))
  for (name in names(tables)) {
    n <- length(as.array(x, name))
    stopifnot(n > 0, !is.data.frame(tables[[name]]) || n == nrow(tables[[name]]))
  }
}

# refusals, in R's words
fails(surprisal(model, 1), "texts: token ids stand for no text here")
fails(surprisal(model, data.frame(a = "x"), column = "b"), "column: the table has no column \"b\"; its columns are a")
fails(surprisal(model, data.frame(a = "x", b = "y"), column = c("a", "b")), "column takes one value, not 2")
fails(surprisal(model, data.frame(a = 1:2, s = c("x", NA)), column = "s"), "s: number 2 is NA")
fails(surprisal(model, cbind(data.frame(a = "x"), a = "y"), column = "a"), "2 columns \"a\"")
fails(surprisal(model, data.frame(a = "x y", n = "1"), column = "a", region_names = "n"),
      "text 1: 1 names of regions for 2 regions")
fails(surprisal(model, "a", by = "letter"), "by: there is no \"letter\"; choose word, token or region")
fails(surprisal(model, "a", bos = NA), "bos: number 1 is NA")
fails(surprisal(model, "a", bos = "no"), "bos: \"no\" is neither true nor false")
fails(surprisal(model, "a", top = -1), "top: \"-1\" is not a whole number from 0 to 1000")
fails(surprisal(model, c("a", NA)), "texts: number 2 is NA")
fails(surprisal(model, list("a")), "texts: expected texts, numbers, or TRUE or FALSE")
fails(word_vectors(model, "a", layer = 1:2), "layer: expected one text")
fails(surprisal(1, "a"), "expected what attn_model() returns")
fails(attn_model("nowhere.attn"), "nowhere.attn")
fails(next_words(model, c("a", "b")), "context: expected one text")
fails(next_words(model, long), "tokens, but the model's context holds 256")
fails(log_prob(model, "a", ""), "the text is empty")
fails(lens(model, "patch", "a"), "patch needs two texts")
fails(lens(model, "nonesuch"), "there is no command nonesuch")
fails(lens(model, "tokens", "a", "b"), "prompt is given twice")
fails(lens(model, "tokens", c("a", "b")), "prompt takes one value, not 2")
fails(lens(model, "tokens", "a", nonesuch = 1), "nonesuch means nothing to tokens")
fails(lens(model, "circuits", "a"), "circuits: every setting needs its name")
fails(lens(model, "sae", prompt = "a"), "sae needs a directory")
drawn <- function(by, ...) {
  set.seed(by)
  c(generate(model, "Once", 12, temperature = 1, ...), generate(model, "Once", 12, temperature = 1, ...))
}
stopifnot(identical(drawn(1), drawn(1)), !identical(drawn(1), drawn(2)), drawn(1)[1] != drawn(1)[2])
stopifnot(identical(drawn(1, seed = 5), drawn(2, seed = 5)))
set.seed(1)
before <- .Random.seed
invisible(generate(model, "Once", 3)) # the likeliest tokens need no random number
stopifnot(identical(before, .Random.seed))
fails(generate(model, "a", temprature = 1), "unused argument")
fails(generate(model, ""), "prompt: without bos it must have at least one token")
fails(generate(model, strrep("a b ", 200)), "tokens, but the context holds 256")
fails(generate(model, "a", max_tokens = NA), "max_tokens: expected a whole number")
fails(generate(model, "a", temperature = -1), "temperature")
fails(generate(model, "a", bos = NA), "bos: expected TRUE or FALSE")
fails(attention(model, NA_character_), "text: expected one text")
fails(attn_model(threads = 1.5), "threads: expected a whole number")
closed <- unserialize(serialize(model, NULL))
fails(surprisal(closed, "a"), "the model is closed")
for (pointer in list(NULL, 1, "a", as.name("a"))) {
  other <- unclass(model)
  other["pointer"] <- list(pointer)
  other <- structure(other, class = "attn_model")
  fails(surprisal(other, "a"), "the model is closed")
  fails(generate(other, "a"), "the model is closed")
}

# bytes that are not UTF-8, wherever a text goes
wrong <- "caf\xe9 noir"
marked <- wrong
Encoding(marked) <- "bytes"
for (text in if (l10n_info()$`UTF-8`) c(wrong, marked) else marked) {
  fails(surprisal(model, c("a", text)), "texts: text 2 is not UTF-8; read its file with fileEncoding")
  fails(surprisal(model, data.frame(s = c("a", text)), column = "s"), "s: text 2 is not UTF-8")
  fails(log_prob(model, "a", text), "continuation: text 1 is not UTF-8")
  fails(generate(model, text, 3), "prompt: text 1 is not UTF-8")
}
latin <- wrong
Encoding(latin) <- "latin1"
stopifnot(identical(surprisal(model, latin)$surprisal, surprisal(model, "caf\u00e9 noir")$surprisal))
unknown <- "caf\xc3\xa9 noir" # UTF-8 that was read in a session of any encoding
if (l10n_info()$`UTF-8` || !l10n_info()$`Latin-1`)
  stopifnot(identical(surprisal(model, unknown)$surprisal, surprisal(model, "caf\u00e9 noir")$surprisal))
fails(surprisal(model, data.frame(`PK\003\004` = "x", check.names = FALSE), column = "s"), "an Excel workbook: save it as CSV UTF-8")

# The package, and the papers on the correction
stopifnot(grepl("Pimentel", paste(format(citation("attn"), style = "text"), collapse = " ")))

# Ctrl-C: R's own condition, and the model can still be used. The calls would take minutes, and the limit is for
# valgrind.
interrupts <- function(code) {
  system(sprintf("(sleep 1; kill -INT %d) &", Sys.getpid()))
  began <- proc.time()[["elapsed"]]
  got <- tryCatch({code; "finished"}, interrupt = function(condition) "interrupt")
  took <- proc.time()[["elapsed"]] - began
  if (got != "interrupt" || took > 30) stop(got, " after ", took, " seconds")
}
if (.Platform$OS.type == "unix") {
  many <- rep(substr(long, 1, 600), 20000)
  interrupts(surprisal(model, many))
  interrupts(surprisal(model, paste(many[1:300], collapse = " ")))
  interrupts(log_prob(model, many, " a"))
  interrupts(for (seed in 1:20000) generate(model, "Once", 200, temperature = 1, seed = seed))
  interrupts(for (i in 1:20000) generate(model, substr(long, 1, 600), 1))  # mostly while it reads the prompt
  interrupts(lens(model, "patch", substr(long, 1, 600), sub("cat", "dog", substr(long, 1, 600)), by = "position-heads"))
  interrupts(for (i in 1:200000) attn_model())
  stopifnot(surprisal(model, "The cat")$tokens == 1)
}
