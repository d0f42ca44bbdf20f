/* What the file of a model says, for programs that list it: its tensors, its tokenizer section, its
 * strings. attn_model_open has checked the file. >>format in attn.h describes it. Uses attn.h's public
 * API only. */
#ifndef LENS_MODEL_FILE_H
#define LENS_MODEL_FILE_H

#include "attn.h"
#include <stdio.h>
#include <string.h>

#if defined(__GNUC__)
#define MODEL_FILE_FN static __attribute__((unused))
#else
#define MODEL_FILE_FN static
#endif

enum { MODEL_FILE_HEADER = 256, MODEL_FILE_ENTRY = 128 }; /* bytes */

/* A tensor of the file. */
typedef struct model_tensor {
    const char *name; /* the model owns it */
    attn_dtype dtype;
    int panels; /* 1: layout "panels", 0: rows */
    int ndim;
    uint64_t shape[2];     /* [1] is 1 if there is one dimension */
    uint64_t offset, size; /* bytes, from the start of the file */
    uint64_t checksum;
} model_tensor;

MODEL_FILE_FN uint64_t model_file_number(const unsigned char *p, int n_bytes)
{
    uint64_t number = 0;
    while (n_bytes-- > 0)
        number = number << 8 | p[n_bytes];
    return number;
}

/* The number of tensors; 0 without a model. */
MODEL_FILE_FN size_t model_n_tensors(const attn_model *model)
{
    const unsigned char *const file = (const unsigned char *)attn_model_bytes(NULL, model);
    return file ? (size_t)model_file_number(file + 64, 4) : 0;
}

/* Tensor `index`, which is below model_n_tensors. */
MODEL_FILE_FN model_tensor model_tensor_at(const attn_model *model, size_t index)
{
    const unsigned char *const r = (const unsigned char *)attn_model_bytes(NULL, model) +
                                   MODEL_FILE_HEADER + index * MODEL_FILE_ENTRY;
    model_tensor t;
    t.name = (const char *)r;
    t.dtype = (attn_dtype)model_file_number(r + 64, 4);
    t.panels = (int)model_file_number(r + 68, 4);
    t.ndim = (int)model_file_number(r + 72, 4);
    t.shape[0] = model_file_number(r + 80, 8);
    t.shape[1] = model_file_number(r + 88, 8);
    t.offset = model_file_number(r + 96, 8);
    t.size = model_file_number(r + 104, 8);
    t.checksum = model_file_number(r + 112, 8);
    return t;
}

/* The tokenizer section, for attn_tokenizer_new. The model owns the bytes; *size (may be NULL) gets
 * their number. NULL and 0 if there is none. */
MODEL_FILE_FN const unsigned char *model_tokenizer_section(size_t *size, const attn_model *model)
{
    const unsigned char *const file = (const unsigned char *)attn_model_bytes(NULL, model);
    const uint64_t offset = file ? model_file_number(file + 96, 8) : 0;
    if (size)
        *size = offset ? (size_t)model_file_number(file + 104, 8) : 0;
    return offset ? file + offset : NULL;
}

/* The key after `key` among the strings about the model; the first one for NULL. NULL if there is no
 * other. attn_model_meta gives its value. */
MODEL_FILE_FN const char *model_next_key(const attn_model *model, const char *key)
{
    const unsigned char *const file = (const unsigned char *)attn_model_bytes(NULL, model);
    size_t size;
    if (!file || model_file_number(file + 8, 4) < 4)
        return NULL;
    size_t begin = model_tokenizer_section(&size, model)
                       ? (size_t)model_file_number(file + 96, 8) + size
                       : MODEL_FILE_HEADER + model_n_tensors(model) * MODEL_FILE_ENTRY;
    begin = (begin + 63) / 64 * 64;
    size_t end = begin + (size_t)model_file_number(file + begin + 8, 8);
    const char *next = key ? attn_model_meta(model, key) : NULL;
    next = next ? next + strlen(next) + 1 : (const char *)file + begin + 16;
    return next < (const char *)file + end ? next : NULL;
}

/* The name of a label of the model's head, which may stand in `room`: then it is that of transformers. */
MODEL_FILE_FN const char *model_label(const attn_model *model, size_t label, char room[32])
{
    snprintf(room, 32, "head.label.%llu", (unsigned long long)label);
    const char *const name = attn_model_meta(model, room);
    snprintf(room, 32, "LABEL_%llu", (unsigned long long)label);
    return name ? name : room;
}

/* The bytes of a matrix [n_in, n_out] in panels; 0 if they are too many, or if dtype has no panels. */
MODEL_FILE_FN size_t model_panels_size(attn_dtype dtype, size_t n_in, size_t n_out)
{
    const size_t n_k = dtype == ATTN_F32 ? 1 : dtype == ATTN_F16 ? 2 : 64; /* of a group of lines */
    const size_t bytes = dtype == ATTN_F32 || dtype == ATTN_F16 ? 64
                         : dtype == ATTN_Q8                     ? 1088
                         : dtype == ATTN_Q4                     ? 576
                                                                : 0;
    const size_t n_panels = n_out / 16 + (n_out % 16 > 0), n_groups = n_in / n_k + (n_in % n_k > 0);
    if (bytes == 0 || n_groups > SIZE_MAX / bytes ||
        (n_groups > 0 && n_panels > SIZE_MAX / (bytes * n_groups)))
        return 0;
    return n_panels * n_groups * bytes;
}

/* The digest of a block of at most 1 MiB: see "Checksum" in >>format. */
MODEL_FILE_FN uint64_t model_block_digest(const unsigned char *block, size_t size)
{
    uint64_t digest = size;
    uint32_t lane[64];
    for (size_t j = 0; j < 64; j++)
        lane[j] = (uint32_t)j;
    for (size_t at = 0; at < size; at += 256) {
        unsigned char last[256] = {0};
        const unsigned char *p = block + at;
        if (size - at < 256)
            p = (const unsigned char *)memcpy(last, p, size - at);
        for (size_t j = 0; j < 64; j++) {
            const uint32_t bits = (uint32_t)p[4 * j] | (uint32_t)p[4 * j + 1] << 8 |
                                  (uint32_t)p[4 * j + 2] << 16 | (uint32_t)p[4 * j + 3] << 24;
            lane[j] = (lane[j] ^ bits) * 0x9E3779B1u;
            lane[j] ^= lane[j] >> 15;
        }
    }
    for (size_t j = 0; j < 64; j++) {
        digest = (digest ^ lane[j]) * 0x9E3779B97F4A7C15u;
        digest ^= digest >> 32;
    }
    return digest;
}

/* The checksum of the file format. A second piece takes the checksum of the first as `previous`; the
 * first takes 0. Only if the first one is a multiple of 1 MiB, the result is that of both in one piece. */
MODEL_FILE_FN uint64_t model_checksum(uint64_t previous, const void *data, size_t size)
{
    const unsigned char *const bytes = (const unsigned char *)data;
    const size_t most = (size_t)1 << 20;
    size_t n;
    for (size_t at = 0; at < size; at += n) {
        n = size - at < most ? size - at : most;
        previous = (previous ^ model_block_digest(bytes + at, n)) * 0x9E3779B97F4A7C15u;
        previous ^= previous >> 32;
    }
    return previous;
}

#endif
