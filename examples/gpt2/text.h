/* Generates one text. gpt2 feeds the prompt, and the library draws the tokens and calls a function for
 * each, which prints the token as text, as an id, or as a row with its probability. */
#ifndef GPT2_TEXT_H
#define GPT2_TEXT_H

#include "tools/common/json_out.h"
#include "tools/lens/save.h"

/* >> Output ==================================================================================== */

static int flush_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) /* an earlier write may have failed */
        return FINE;
    if (errno == EPIPE) /* SIGPIPE is ignored, so the write failed instead */
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write the output: %s", why(errno));
}

/* Prints complete characters. On a terminal, which would obey control characters, U+FFFD is printed
 * for each, except for tabs and the ends of lines. */
static void put_text(const run *r, const char *text, size_t size)
{
    size_t control;
    if (!r->terminal) {
        fwrite(text, 1, size, stdout);
        return;
    }
    for (size_t i = 0; i < size; i += control ? control : 1) {
        control = strchr("\n\t", text[i]) && text[i] ? 0 : control_size(text, i, size);
        if (control)
            fputs("\xEF\xBF\xBD", stdout);
        else
            putchar(text[i]);
    }
}

/* Prints the complete characters of a token, and keeps the bytes of an incomplete one. */
static void put_token(run *r, const char *bytes, size_t size)
{
    char text[3 * (64 + 4)];
    size_t piece;
    for (size_t done = 0; bytes && done < size; done += piece) {
        piece = size - done < 64 ? size - done : 64;
        put_text(r, text, attn_utf8_push(text, &r->utf8, bytes + done, piece));
    }
}

static void put_id(run *r, attn_token id)
{
    printf("%s%ld", r->n_printed++ ? " " : "", (long)id);
}

/* Prints the text of ids, or the ids. */
static int print_tokens(run *r, const attn_token *ids, size_t n)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    char rest[3 * 4];
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        if (r->o.print_ids || !tokenizer) {
            put_id(r, ids[i]);
        } else {
            const char *bytes = attn_token_bytes(&size, tokenizer, ids[i]);
            put_token(r, bytes, size);
        }
    put_text(r, rest, attn_utf8_push(rest, &r->utf8, "", 0));
    return flush_output();
}

/* The colours of the terminal's palette, which fit its background. */
static const char *colour_of(float probability)
{
    return probability >= 0.5f    ? "\033[34m"
           : probability >= 0.2f  ? "\033[36m"
           : probability >= 0.05f ? "\033[33m"
           : probability >= 0.01f ? "\033[31m"
                                  : "\033[35m";
}

/* >> Input ===================================================================================== */

/* Reads the next line of standard input. A failure has its message in r->ctx. */
static line_status next_line(run *r, const char *sign, const char **line, size_t *size)
{
    r->lines.file = stdin;
    if (system_is_terminal(stdin))
        fputs(sign, stderr);
    line_status status = lines_next(&r->lines, 1, line, size);
    if (status == LINE_FAILED)
        tool_fail(&r->ctx, ATTN_E_IO, "standard input %s",
                  r->lines.is_utf16 ? UTF16_ADVICE : why(errno));
    return status;
}

/* >> The prompt ================================================================================ */

static int write_floats(FILE *file, float *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* made little-endian in place */
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        put_u32((unsigned char *)&numbers[i], bits);
    }
    return fwrite(numbers, sizeof *numbers, n, file) == n;
}

/* Feeds ids in pieces, which changes no bit of the result, so that the progress is shown, and the
 * logits of a long text, if they are written to a file, are not all in memory. */
static int feed_pieces(run *r, const attn_token *ids, size_t n_ids, FILE *file, float *logits,
                       size_t piece)
{
    size_t n;
    progress_begin(&r->progress, "prompt");
    for (size_t done = 0; done < n_ids; done += n) {
        progress_at(&r->progress, (double)done / (double)n_ids);
        n = n_ids - done < piece ? n_ids - done : piece;
        attn_feed_item item = {
            .session = r->session, .tokens = ids + done, .n_tokens = n, .logits = logits};
        if (attn_feed_batch(&r->ctx, &item, 1))
            return failed(&r->ctx);
        if (file && !write_floats(file, logits, n * attn_model_config(r->model)->n_vocab))
            return FINE; /* lens_new_file_end reports the error */
    }
    return FINE;
}

static int feed_ids(run *r, const attn_token *ids, size_t n)
{
    const int code = feed_pieces(r, ids, n, NULL, NULL, system_is_terminal(stderr) ? 64 : 256);
    progress_end(&r->progress);
    return code;
}

/* Feeds the prompt and writes the logits of its positions to a file. */
static int feed_and_save(run *r)
{
    const size_t piece = 32, n_vocab = attn_model_config(r->model)->n_vocab;
    unsigned char header[128];
    float *logits;
    lens_new_file *array;
    int code;
    if (lens_new_file_begin(&r->ctx, &array, r->o.logits))
        return failed(&r->ctx);
    FILE *file = (FILE *)lens_new_file_stream(array);
    lens_npy_header(header, ATTN_F32, attn_shape2(r->n_prompt, n_vocab));
    fwrite(header, 1, sizeof header, file);
    if (!(logits = (float *)calloc(piece * n_vocab, sizeof *logits)))
        code = fail(FAILED, "no memory for logits");
    else
        code = feed_pieces(r, r->prompt, r->n_prompt, file, logits, piece);
    progress_end(&r->progress);
    if (lens_new_file_end(&r->ctx, array, code == FINE ? ATTN_OK : ATTN_STOPPED) && code == FINE)
        code = failed(&r->ctx);
    free(logits);
    return code;
}

/* Prints the prompt, on a terminal in another colour than the continuation. */
static int print_prompt(run *r)
{
    if (r->o.no_prompt || r->o.logprobs || (r->o.logits && r->o.tokens == 0))
        return FINE;
    if (r->colour)
        fputs("\033[36m", stdout);
    int code = print_tokens(r, r->prompt + r->o.bos, r->n_prompt - (size_t)r->o.bos);
    if (r->colour)
        fputs("\033[0m", stdout);
    return code;
}

/* Feeds the prompt and prints it. On a terminal, a long prompt is printed after it was fed, because the
 * progress needs the line. */
static int feed_and_print(run *r)
{
    const int last = system_is_terminal(stderr) && r->n_prompt > 64;
    int code = last ? FINE : print_prompt(r);
    double begin = system_seconds();
    if (code == FINE)
        code = r->o.logits ? feed_and_save(r) : feed_ids(r, r->prompt, r->n_prompt);
    r->prompt_seconds = system_seconds() - begin;
    return code == FINE && last ? print_prompt(r) : code;
}

/* >> Drawing tokens ============================================================================ */

/* The loss and the probability of a token by the logits of the latest draw, before the sampler changes
 * them. */
static attn_token_stats stats_of(const run *r, attn_token id)
{
    attn_ctx ctx = {.n_threads = 1}; /* r->ctx is in use by the caller */
    attn_token_stats stats = {0};
    attn_logit_stats(
        &ctx, &stats, NULL,
        attn_borrow(r->row, ATTN_F32, attn_shape2(1, attn_model_config(r->model)->n_vocab)), &id);
    return stats;
}

/* Ends a row with bytes as a JSON string. */
static int end_row(const char *bytes, size_t size)
{
    json_out text = {0};
    out_text(&text, NULL, bytes, size);
    int whole = out_line(&text, stdout);
    out_free(&text);
    return whole ? flush_output() : fail(FAILED, "no memory for a row");
}

/* Prints a row for a token, with its probability. */
static int print_token_row(run *r, attn_token id, double nll)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    size_t size = 0;
    const char *bytes = tokenizer ? attn_token_bytes(&size, tokenizer, id) : NULL;
    if (r->n_printed++ == 0)
        puts("  logprob  probability      id  token");
    printf("%9.5f   %8.4f %%  %6ld  ", -nll, 100 * exp(-nll), (long)id);
    return end_row(bytes, bytes ? size : 0);
}

/* Prints those of the first n drawn tokens that were not printed yet, as rows or ids; take_text prints
 * text. The library calls before_draw before a draw, so its token is known at the next call. */
static void show_drawn(run *r, size_t n)
{
    for (; r->n_shown < n; r->n_shown++) {
        const attn_token id = r->drawn[r->n_shown];
        int code = FINE;
        if (r->o.logprobs) {
            code = print_token_row(r, id, (double)stats_of(r, id).nll);
        } else if (r->o.print_ids || !attn_model_tokenizer(r->model)) {
            put_id(r, id);
            code = flush_output();
        }
        r->code = r->code == FINE ? code : r->code;
    }
}

/* An attn_logits_fn: keeps the logits if probabilities are shown. */
static int before_draw(float *logits, const attn_session *session, void *user)
{
    run *r = (run *)user;
    (void)session;
    show_drawn(r, r->n_draws);
    if (r->code != FINE)
        return 1;
    if (r->o.logprobs || r->o.colours)
        memcpy(r->row, logits, attn_model_config(r->model)->n_vocab * sizeof *r->row);
    if (r->o.receipt)
        sha256_floats(r->digests + r->n_draws * SHA256_SIZE, logits,
                      attn_model_config(r->model)->n_vocab);
    r->n_draws++;
    return 0;
}

/* An attn_text_fn: prints the text of the latest token. */
static int take_text(const char *text, size_t size, void *user)
{
    run *r = (run *)user;
    const int coloured = r->colour && r->o.colours;
    if (r->o.repl)
        out_bytes(&r->shown, text, size);
    if (r->o.logprobs || r->o.print_ids)
        return 0;
    if (coloured)
        fputs(colour_of(stats_of(r, r->drawn[r->n_draws - 1]).probability), stdout);
    put_text(r, text, size);
    if (coloured)
        fputs("\033[0m", stdout);
    r->code = flush_output();
    return r->code != FINE;
}

/* Feeds ids and draws at most `most` tokens, in one call of the library. */
static int draw_tokens(run *r, const attn_token *ids, size_t n_ids, size_t most, size_t *n_drawn)
{
    attn_generation made = {.tokens = r->drawn, .room = most};
    const attn_generate_desc how = {.reuse_sampler = r->sampler,
                                    .text_fn = take_text,
                                    .text_user = r,
                                    .logits_fn = before_draw,
                                    .logits_user = r,
                                    .max_tokens = most,
                                    .ignore_eos = r->o.ignore_eos,
                                    .stop_strings = r->o.stop.at,
                                    .n_stop_strings = r->o.stop.n,
                                    .prompt_tokens = ids,
                                    .n_prompt_tokens = n_ids};
    r->n_draws = r->n_shown = 0;
    attn_status status = attn_generate(&r->ctx, &made, r->session, "", &how);
    *n_drawn = made.n_tokens;
    r->reason = made.reason;
    r->accepted = made.accepted;
    show_drawn(r, *n_drawn);
    r->n_generated += *n_drawn;
    if (r->code != FINE)
        return r->code;
    if (r->reason == ATTN_STOP_CALLBACK)
        return INTERRUPTED;
    return status ? failed(&r->ctx) : FINE;
}

static const char *why_ended(attn_stop_reason reason)
{
    return reason == ATTN_STOP_EOS       ? "the text ended"
           : reason == ATTN_STOP_CONTEXT ? "the context is full"
           : reason == ATTN_STOP_STRING  ? "it reached a stop string"
                                         : "it has -n tokens";
}

/* >> A text ==================================================================================== */

/* The tokens of the text from number `first` on; NULL while the text is empty. */
static const int32_t *text_from(const run *r, size_t first)
{
    return r->text.ids ? r->text.ids + first : NULL;
}

/* 1 if the text begins with the beginning-of-text token, which is not printed, else 0. */
static size_t n_bos(const run *r)
{
    return r->text.n > 0 && r->o.bos && r->text.ids[0] == attn_model_config(r->model)->bos;
}

/* Appends tokens to the text. */
static int keep_tokens(run *r, const attn_token *ids, size_t n)
{
    if (!r->text.ids || n > r->text.room - r->text.n) {
        const size_t room = 2 * r->text.n + n + 256;
        int32_t *larger = room < SIZE_MAX / sizeof *larger
                              ? (attn_token *)realloc(r->text.ids, room * sizeof *larger)
                              : NULL;
        if (!larger)
            return fail(FAILED, "no memory for a text of %zu tokens", r->text.n + n);
        r->text.ids = larger;
        r->text.room = room;
    }
    if (n > 0)
        memcpy(r->text.ids + r->text.n, ids, n * sizeof *ids);
    r->text.n += n;
    return FINE;
}

/* Keeps only the last tokens of the text in the context, half as many as the session has room for.
 * Returns their number; the caller feeds them. The library takes them for a new prompt, so it does not
 * recognise a character or a stop string that begins before them. */
static size_t drop_older_half(run *r)
{
    const size_t half = (attn_session_capacity(r->session) + 1) / 2;
    r->first = r->text.n - (r->text.n < half ? r->text.n : half);
    r->n_slides++;
    return r->text.n - r->first;
}

/* Draws -n tokens, prints them and appends them to the text. */
static int generate(run *r)
{
    const size_t n_ctx = attn_model_config(r->model)->n_ctx;
    size_t left, n_fed = 0, n_drawn = 0;
    int code = FINE;
    r->reason = ATTN_STOP_COUNT;
    while (code == FINE && (left = r->o.tokens - r->n_generated) > 0) {
        code = draw_tokens(r, text_from(r, r->text.n - n_fed), n_fed,
                           left < n_ctx + 1 ? left : n_ctx + 1, &n_drawn);
        if (keep_tokens(r, r->drawn, n_drawn) != FINE)
            return FAILED;
        if (code != FINE || r->reason != ATTN_STOP_CONTEXT || !r->o.slide)
            break;
        n_fed = drop_older_half(r);
        if (attn_session_truncate(&r->ctx, r->session, 0))
            return failed(&r->ctx);
    }
    r->ended = code == INTERRUPTED ? "stopped by Ctrl-C" : why_ended(r->reason);
    return code;
}

/* The strings of the model's file: its name, source, license ... */
static void print_meta(const attn_model *model)
{
    const char *key = model_next_key(model, NULL);
    for (; key; key = model_next_key(model, key))
        fprintf(stderr, "%s: %s\n", key, attn_model_meta(model, key));
}

/* Of each line of a stream only with -v. */
static void print_statistics(const run *r)
{
    const int threads = attn_max_threads(&r->ctx);
    if (r->o.quiet || (r->o.interactive && !r->o.verbose))
        return;
    fprintf(stderr, "prompt %zu tokens, %.1f/s; generated %zu, %.1f/s: %s; ", r->n_prompt,
            (double)r->n_prompt / (r->prompt_seconds + 1e-9), r->n_generated,
            (double)r->n_generated / (r->generate_seconds + 1e-9), r->ended);
    if (r->n_slides > 0)
        fprintf(stderr, "the context was full and dropped its older half, %zu times; ",
                r->n_slides);
    fprintf(stderr, "loaded in %.3f s; ", r->load_seconds);
#ifdef HAVE_POSIX
    {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage); /* in KiB; on Apple's systems in bytes */
#ifdef __APPLE__
        usage.ru_maxrss /= 1024;
#endif
        fprintf(stderr, "%.1f MiB; ", (double)usage.ru_maxrss / 1024);
    }
#endif
    fprintf(stderr, "%s; %d thread%s\n", attn_isa(&r->ctx), threads, threads == 1 ? "" : "s");
}

/* >> Sessions in files ========================================================================== */

static int load_session(run *r)
{
    if (lens_session_load(&r->ctx, r->session, r->o.session))
        return failed(&r->ctx);
    size_t length = attn_session_length(r->session);
    if (r->n_prompt > attn_session_capacity(r->session) - length)
        return fail(FAILED,
                    "%s holds %zu tokens, and the prompt has %zu: the model's context holds %zu",
                    r->o.session, length, r->n_prompt, attn_session_capacity(r->session));
    return FINE;
}

/* Saves the session with the text that was shown: without a stop string, and with the last drawn token,
 * which the session does not hold after Ctrl-C. */
static int save_session(run *r)
{
    const size_t length = attn_session_length(r->session);
    const size_t capacity = attn_session_capacity(r->session);
    size_t n = r->reason == ATTN_STOP_STRING ? r->accepted : r->text.n - r->first;
    n = n < capacity ? n : capacity;
    size_t from = n > length ? length : n - 1; /* the last one gives the logits */
    r->ctx.stop_flag = NULL;
    if ((n != length || !attn_session_logits(r->session)) &&
        (attn_session_truncate(&r->ctx, r->session, from) ||
         attn_feed(&r->ctx, r->session, text_from(r, r->first + from), n - from)))
        return failed(&r->ctx);
    return lens_session_save(&r->ctx, r->o.session, r->session) ? fail_ctx(&r->ctx) : FINE;
}

/* Prints the prompt and its continuation. */
static int continue_prompt(run *r)
{
    const int silent = r->o.logits && r->o.tokens == 0; /* only the array is wanted */
    r->ended = "stopped";
    r->text.n = r->first = r->n_slides = 0;
    int code = keep_tokens(r, attn_session_tokens(r->session), attn_session_length(r->session));
    if (code == FINE)
        code = keep_tokens(r, r->prompt, r->n_prompt);
    if (code == FINE)
        code = feed_and_print(r);
    double begin = system_seconds();
    if (code == FINE) {
        code = generate(r);
        if (r->o.session && (code == FINE || code == INTERRUPTED) && save_session(r) != FINE)
            return FAILED;
    }
    r->generate_seconds = system_seconds() - begin;
    if (code != FINE && code != INTERRUPTED)
        return code;
    if (code == INTERRUPTED)
        r->ended = "stopped by Ctrl-C";
    if (!silent && !r->o.logprobs)
        putchar('\n');
    int end_code = flush_output();
    if (code == FINE && r->o.receipt)
        code = write_receipt(r);
    print_statistics(r);
    return code != FINE ? code : end_code;
}

#endif
