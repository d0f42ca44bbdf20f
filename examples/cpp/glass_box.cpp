// c++ -std=c++17 examples/cpp/glass_box.cpp -I. -O2 -o glass_box
//
// A story; then a comma's logit with and without one attention head, once by an edit and once by a
// hook; and the likeliest next token, read from the residual stream before each layer.
#define ATTN_IMPLEMENTATION
#include "attn.hpp"
#include "../../tools/lens/logits.h"
#include <algorithm>
#include <cstdio>
#include <iostream>

static void without_a_head(const attn::model &model, const attn::ids &ids)
{
    const auto comma = static_cast<std::size_t>(model.token(","));
    attn::session session(model);
    attn_edit edit = ATTN_ZERO;
    edit.name = "blocks.2.attn.hook_z", edit.first_head = 3, edit.n_heads = 1;
    session.feed(ids);
    const double with = session.logits()[comma];
    session.truncate(0);
    const attn_hook_id id = session.edit(edit);
    session.feed(ids);
    const double without = session.logits()[comma];
    session.unhook(id);
    session.truncate(0);
    session.hook(edit.name, [](const attn_activation &z) {
        const attn::tensor value(z.value); // [positions, heads, d_head]
        for (std::size_t t = 0; t < value.size(0); t++)
            for (std::size_t i = 0; i < value.size(2); i++)
                value(t, 3, i) = 0;
    });
    session.feed(ids);
    const double by_a_hook = session.logits()[comma];
    std::printf("with the head %.2f, without it %.2f, by a hook %.2f\n", with, without, by_a_hook);
}

static void logit_lens(const attn::model &model, const attn::ids &ids)
{
    attn::session session(model);
    session.hook("blocks.*.hook_resid_pre", [&](const attn_activation &stream) {
        const attn::tensor logits = attn::tensor::make([&](attn_ctx *ctx, attn_tensor *out) {
            return lens_logit_lens(ctx, out, model.get(), stream.value, attn_tensor(),
                                   attn_tensor());
        });
        const float *row = &logits(ids.size() - 1, 0);
        const auto best = std::max_element(row, row + logits.size(1)) - row;
        std::cout << "before layer " << stream.layer << ":"
                  << model.decode(attn::ids{static_cast<attn_token>(best)}) << "\n";
    });
    session.feed(ids);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return std::cerr << "usage: glass_box MODEL.attn\n", 2;
    try {
        const attn::model model(argv[1]);
        const attn::ids ids = model.encode("Once upon a time");
        attn_generate_desc how = ATTN_ZERO;
        how.max_tokens = 40;
        std::cout << "Once upon a time";
        attn::session(model).generate(
            "Once upon a time", [](std::string_view text) { std::cout << text << std::flush; },
            how);
        std::cout << "\n";
        without_a_head(model, ids);
        logit_lens(model, ids);
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    if (std::cout.flush())
        return 0;
    std::cerr << "cannot write the output\n";
    return 1;
}
