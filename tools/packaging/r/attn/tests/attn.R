library(attn)
model <- attn_model()

# as tools/surprisal prints them for the same model
expected <- read.csv("expected.csv", na.strings = NULL)
got <- surprisal(model, readLines("texts.txt", encoding = "UTF-8"))
stopifnot(identical(names(got), names(expected)), nrow(got) == nrow(expected),
          got$text == expected$text, got$index == expected$index, got$tokens == expected$tokens)
for (column in c("surprisal", "uncorrected", "entropy"))
  stopifnot(max(abs(got[[column]] - expected[[column]])) < 5e-6)

tokens <- surprisal(model, "The horse raced past the barn.", by = "token")
words <- surprisal(model, "The horse raced past the barn.")
stopifnot(all.equal(sum(tokens$surprisal), sum(words$surprisal)))
stopifnot(is.na(surprisal(model, "The cat", bos = FALSE)$surprisal) == c(TRUE, FALSE))
joined <- surprisal(model, data.frame(word = "a", s = c("The cat", "")), column = "s")
stopifnot(identical(names(joined)[8], "input_word"), nrow(joined) == 2)

long <- paste(rep("The cat sat on the mat.", 60), collapse = " ")
stopifnot(all(is.finite(surprisal(model, long, stride = 200)$surprisal)))

likely <- next_words(model, "Once upon a", 2)
stopifnot(likely$token[1] == " time",
          all.equal(likely$probability[1], exp(log_prob(model, "Once upon a", " time")), tolerance = 1e-5))
stopifnot(identical(generate(model, "Once upon a time", 12), ", there was a little girl named Lily. She loved to"))
pattern <- attention(model, "Once upon a")
stopifnot(identical(dim(pattern), c(4L, 6L, 4L, 4L)), all.equal(unname(apply(pattern, 1:3, sum)), array(1, c(4, 6, 4)), tolerance = 1e-5))

fails <- function(code, words) {
  said <- tryCatch({code; "nothing"}, error = conditionMessage)
  if (!grepl(words, said, fixed = TRUE)) stop("said ", said)
}
fails(attn_model("nowhere.attn"), "nowhere.attn")
fails(surprisal(model, 1), "expected texts")
fails(surprisal(model, data.frame(a = "x"), column = "b"), "has the columns a")
fails(surprisal(model, "a", stride = 256), "expected 1 to 255")
fails(surprisal(model, c("a", NA)), "text 2 is NA")
fails(surprisal(1, "a"), "expected what attn_model() returns")
