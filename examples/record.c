/* cc examples/record.c -I. -O2 -lm -o record
 *
 * Activations of a sentence to a file: the residual stream after each block, under
 * TransformerLens's names, as .safetensors. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/save.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    static const char *const name = "blocks.*.hook_resid_post";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_record_desc desc = {0};
    attn_tensor x = {0};
    if (argc != 4)
        return fprintf(stderr, "usage: record MODEL.attn \"A sentence\" OUT.safetensors\n"), 2;
    desc.names = &name;
    desc.n_names = 1;
    if (attn_model_open(&ctx, &model, argv[1], NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        attn_record_new(&ctx, &record, session, &desc) || attn_feed_text(&ctx, session, argv[2]) ||
        lens_save_record(&ctx, argv[3], record))
        fprintf(stderr, "%s\n", ctx.message);
    for (size_t i = 0; ctx.status == ATTN_OK && i < attn_record_n_activations(record); i++)
        if (attn_record_get(&ctx, &x, record, attn_record_name(record, i)) == ATTN_OK)
            printf("%s [%d, %d]\n", attn_record_name(record, i), (int)x.shape[0], (int)x.shape[1]);
    attn_record_free(record);
    attn_session_free(session);
    attn_model_close(model);
    if (fflush(stdout) || ferror(stdout))
        return perror("cannot write the output"), 1;
    return ctx.status != ATTN_OK;
}
