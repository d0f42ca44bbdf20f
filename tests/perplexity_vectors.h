/* Made by make_perplexity_vectors.py: change that, not this. */
static const struct {
    const char *file, *recipe;
    int context, stride, n_tokens;
    double nll, error; /* mean, and its standard error */
} perplexity_vectors[] = {
    {"LICENSE", "strided", 256, 128, 655, 4.490265793, 0.105104893},
    {"LICENSE", "strided", 100, 7, 655, 4.515755269, 0.105046386},
    {"LICENSE", "strided", 64, 64, 645, 4.709682086, 0.112260979},
    {"LICENSE", "halves", 64, 64, 310, 4.348827003, 0.158317838},
    {"examples/tiny-stories/README.md", "strided", 256, 64, 782, 6.566623272, 0.145460816},
    {"examples/tiny-stories/README.md", "halves", 256, 256, 381, 6.754676675, 0.213263699},
};
