/* Matrices as panels of 16 outputs, which attn_linear takes without packing them (ATTN_PANELS; attn.h's
 * >>format describes them). For matrices that are used in many products. Uses attn.h's public API only. */
#ifndef LENS_PANELS_H
#define LENS_PANELS_H

#include "result.h"

/* *panels (a zeroed tensor) becomes [ceil(N / 16), K, 16] from w [K, N], with zeros beyond N. */
LENS_FN attn_status lens_pack(attn_ctx *ctx, attn_tensor *panels, attn_tensor w)
{
    const size_t n_in = w.shape[0], n_out = w.shape[1], whole = n_out / 16, rest = n_out % 16;
    attn_status status =
        attn_zeros(ctx, panels, ATTN_F32, attn_shape3(whole + (rest > 0), n_in, 16));
    attn_tensor to, from;
    if (status == ATTN_OK && whole > 0) {
        to = attn_slice(*panels, 0, 0, whole);
        from = attn_reshape(attn_slice(w, 1, 0, whole * 16), attn_shape3(n_in, whole, 16));
        status = attn_copy(ctx, &to, attn_transpose(from, 0, 1));
    }
    if (status == ATTN_OK && rest > 0) {
        to = attn_slice(attn_select(*panels, 0, whole), 1, 0, rest);
        status = attn_copy(ctx, &to, attn_slice(w, 1, whole * 16, rest));
    }
    if (status == ATTN_OK)
        panels->dtype = ATTN_PANELS;
    return status;
}

/* out [T, N] = x [T, K] · w [K, N]. `panels` is w from lens_pack. The caller allocates out. */
LENS_FN attn_status lens_multiply(attn_ctx *ctx, attn_tensor out, attn_tensor x, attn_tensor panels)
{
    attn_tensor wide = ATTN_ZERO, none = ATTN_ZERO;
    if (out.shape[1] == 16 * panels.shape[0])
        return attn_linear(ctx, &out, x, panels, none);
    attn_status status = attn_linear(ctx, &wide, x, panels, none);
    if (status == ATTN_OK)
        status = attn_copy(ctx, &out, attn_slice(wide, 1, 0, out.shape[1]));
    attn_tensor_free(ctx, &wide);
    return status;
}

#endif
