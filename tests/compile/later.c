/* Part two, asked for when part one is implemented already, as the headers of tools/lens ask for it. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#ifndef ATTN_UNSTABLE
#define ATTN_UNSTABLE
#endif
#include "attn.h"

int main(void)
{
    return attn_record_n_activations(NULL) != 0;
}
