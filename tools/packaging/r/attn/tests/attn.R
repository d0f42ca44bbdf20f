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
expected <- read.csv("expected.csv", na.strings = NULL)
got <- surprisal(model, readLines("texts.txt", encoding = "UTF-8"))
stopifnot(identical(names(got), names(expected)), nrow(got) == nrow(expected),
          got$text == expected$text, got$index == expected$index, got$tokens == expected$tokens)
for (column in c("surprisal", "uncorrected", "entropy")) stopifnot(got[[column]] == expected[[column]])

# every option, likewise
compare <- function(got, file) {
  expected <- read.csv(file, na.strings = NULL)
  stopifnot(identical(names(got), names(expected)), nrow(got) == nrow(expected))
  for (column in names(got))
    stopifnot(as.character(got[[column]]) == as.character(expected[[column]]))
}
items <- read.csv("items.csv", na.strings = NULL)
for (by in c("word", "token", "region")) {
  compare(surprisal(model, items, by, "s", rank = TRUE, top = 2, regions = "_"), sprintf("marked-%s.csv", by))
  compare(surprisal(model, read.csv("words.csv", na.strings = NULL), by, "s", "nats", region_names = "n"),
          sprintf("named-%s.csv", by))
}

tokens <- surprisal(model, "The horse raced past the barn.", by = "token")
words <- surprisal(model, "The horse raced past the barn.")
stopifnot(all.equal(sum(tokens$surprisal), sum(words$surprisal)))
stopifnot(is.na(surprisal(model, "The cat", bos = FALSE)$surprisal) == c(TRUE, FALSE))
joined <- surprisal(model, data.frame(word = "a", s = c("The cat", "")), column = "s")
stopifnot(identical(names(joined)[8], "input_word"), nrow(joined) == 2)

stopifnot(identical(names(suppressMessages(surprisal(model, " "))), names(surprisal(model, "a"))))
said <- character()
invisible(withCallingHandlers(surprisal(model, c("a", "", "a\u00a0b")), message = function(m) {
  said <<- c(said, conditionMessage(m))
  invokeRestart("muffleMessage")
}))
stopifnot(grepl("1 of 3 texts have no words", said), grepl("1 of 3 texts have no-break spaces", said))

stopifnot(identical(surprisal(model, factor(c("a b", "c"))), surprisal(model, c("a b", "c"))))

stopifnot(all(is.finite(surprisal(model, long, stride = 200)$surprisal)))

everything <- next_words(model, "Once upon a", model$config$n_vocab)
stopifnot(nrow(everything) == model$config$n_vocab, abs(sum(everything$probability) - 1) < 1e-4, "\u2400" %in% everything$token)

# shapes of tables
stopifnot(identical(dim(surprisal(model, "Once")), c(1L, 7L)), identical(rownames(surprisal(model, "Once")), "1"))
twice <- cbind(data.frame(note = 1:2, s = c("a b", "c")), note = c("x", "y"), text = c(TRUE, NA), input_text = factor(c("u", "v")))
twice <- surprisal(model, twice, column = "s")
stopifnot(identical(names(twice)[8:11], c("note", "input_note", "input_input_text", "input_text")), twice$note == c(1, 1, 2),
          twice$input_note == c("x", "x", "y"), is.logical(twice$input_input_text), is.factor(twice$input_text))
stopifnot(identical(nrow(surprisal(model, character())), 0L))
joined <- surprisal(model, c("Once upon", "a time"), continues = TRUE)
stopifnot(identical(joined$surprisal, surprisal(model, "Once upon a time")$surprisal), joined$text == c(1, 1, 2, 2))
apart <- surprisal(model, "Well, no.", punctuation = "apart")
stopifnot(identical(apart$word, c("Well", ",", "no", ".")))

# rows as those of surprisal(); one token is the last token, and two are their mean
sentences <- c("Once  upon a time.", "", "The dog's bone \U0001F600.")
vectors <- suppressMessages(word_vectors(model, sentences, layer = 3))
rows <- suppressMessages(surprisal(model, sentences))
tokens <- suppressMessages(word_vectors(model, sentences, layer = 3, by = "token"))
word <- rep(seq_len(nrow(rows)), rows$tokens)
stopifnot(identical(dim(vectors), c(nrow(rows), 192L)), nrow(tokens) == sum(rows$tokens), max(rows$tokens) > 2,
          all.equal(vectors, unname(rowsum(tokens, word)) / rows$tokens, tolerance = 1e-6),
          identical(suppressMessages(word_vectors(model, sentences, layer = 3, pooling = "last")), tokens[cumsum(rows$tokens), ]))
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
fails(attn_model("nowhere.attn"), "nowhere.attn")
fails(surprisal(model, 1), "expected texts")
fails(surprisal(model, data.frame(a = "x"), column = "b"), "column: the table has no column \"b\"; its columns are a")
fails(surprisal(model, data.frame(a = "x", b = "y")), "name the column of texts with column; its columns are a, b")
fails(surprisal(model, data.frame(a = "x", b = "y"), column = c("a", "b")), "column: expected the name of a column")
fails(surprisal(model, "x", column = "a"), "column: there is no table")
fails(surprisal(model, cbind(data.frame(a = "x"), a = "y"), column = "a"), "2 columns \"a\"")
fails(surprisal(model, data.frame(a = "x"), "a"), "did you mean column = \"a\"?")
fails(surprisal(model, "a", "letter"), "by: expected \"word\" or \"token\" or \"region\"")
fails(surprisal(model, data.frame(a = "x y", n = "1"), column = "a", region_names = "n"),
      "text 1: 1 names of regions for 2 regions")
fails(surprisal(model, "a", region_names = "n"), "give the column of texts with column")
fails(surprisal(model, "a", by = "region"), "by = \"region\" needs regions or region_names")
fails(surprisal(model, "a", regions = " "), "regions: \" \" is not a mark without blanks")
fails(surprisal(model, "a", bos = NA), "bos: expected TRUE or FALSE")
fails(surprisal(model, "a", top = -1), "top: expected a whole number from 0 to 1000")
fails(surprisal(model, "a", stride = 256), "stride is 256, but the model's context holds 255")
fails(surprisal(model, c("a", NA)), "text 2 is NA")
fails(word_vectors(model, "a", layer = 4), "layer: blocks.4.hook_resid_post: the model has 4 layers, 0 to 3")
fails(word_vectors(model, "a", layer = "resid"), "layer: no activation is called \"resid\"")
fails(word_vectors(model, "a", layer = NULL), "layer: expected")
fails(word_vectors(model, "a", layer = 1:2), "layer: expected the number of a layer or the name of an activation")
fails(surprisal(1, "a"), "expected what attn_model() returns")
fails(next_words(model, c("a", "b")), "context: expected one text")
fails(next_words(model, "", bos = FALSE), "the text is empty")
fails(next_words(model, long), "tokens, but the context holds 256")
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
fails(attention(model, NA_character_), "text: expected one text")
fails(attn_model(threads = 1.5), "threads: expected a whole number")
fails(attn_model(threads = NA), "threads: expected a whole number")
closed <- unserialize(serialize(model, NULL))
fails(surprisal(closed, "a"), "the model is closed")
for (pointer in list(NULL, 1, "a", as.name("a"))) {
  other <- unclass(model)
  other["pointer"] <- list(pointer)
  other <- structure(other, class = "attn_model")
  fails(surprisal(other, "a"), "the model is closed")
  fails(next_words(other, "a"), "the model is closed")
  fails(generate(other, "a"), "the model is closed")
  fails(attention(other, "a"), "the model is closed")
}

# bytes that are not UTF-8, wherever a text goes
wrong <- "caf\xe9 noir"
marked <- wrong
Encoding(marked) <- "bytes"
for (text in if (l10n_info()$`UTF-8`) c(wrong, marked) else marked) {
  fails(surprisal(model, c("a", text)), "text 2: the byte e9 is not UTF-8; read the file with fileEncoding")
  fails(surprisal(model, data.frame(s = c("a", text)), column = "s"), "text 2: the byte e9 is not UTF-8")
  fails(surprisal(model, data.frame(s = "a", n = text), column = "s", region_names = "n"), "the byte e9 is not UTF-8")
  fails(next_words(model, text), "context: the byte e9 is not UTF-8")
  fails(log_prob(model, "a", text), "continuation: the byte e9 is not UTF-8")
  fails(generate(model, text, 3), "prompt: the byte e9 is not UTF-8")
  fails(attention(model, text), "text: the byte e9 is not UTF-8")
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
  interrupts(for (i in 1:20000) attention(model, substr(long, 1, 600)))
  interrupts(for (i in 1:200000) attn_model())
  stopifnot(surprisal(model, "The cat")$tokens == 1)
}
