/* The digest of an answer in units, so that a part of it can be computed again alone: of surprisal a unit is the rows of
 * a text, of score a line, of lens all tables of a text, or a row where no text is read. Units are the leaves of a Merkle
 * tree:
 *
 *     leaf   SHA-256(0x00, text of the unit)
 *     node   SHA-256(0x01, left, right); one without a neighbour goes up as it is
 *
 * The text of a unit is, for each table of it, the line of its name, the line of its columns' names, and its rows as CSV
 * has them; of a large tensor the lines of its name, of its shape, and of the SHA-256 of its f32 bits, little-endian.
 * Columns that are inexact (answer.h) are left out. A block is UNITS_OF_BLOCK units, and its digest a node of the tree. */
#ifndef WAIST_UNITS_H
#define WAIST_UNITS_H

#include "forms.h"
#include "tools/common/sha256.h"

enum { UNITS_OF_BLOCK = 64 };

/* A row of a table. */
typedef struct unit_place {
    const char *table; /* NULL: there was none yet */
    size_t row;
} unit_place;

/* Zero it. */
typedef struct answer_units {
    uint64_t n; /* that are complete */
    int is_open;
    sha256 leaf; /* of the unit that is open */
    unsigned char leaves[UNITS_OF_BLOCK * SHA256_SIZE];
    json_out blocks; /* SHA256_SIZE bytes of each block that is complete */
    json_out ends;   /* the unit_place of the latest row of each block */
    unit_place latest;
    json_out row;
    const unsigned char *wanted; /* [n_wanted]: the blocks that are asked for; NULL: all */
    uint64_t n_wanted;
} answer_units;

/* Is the unit number i asked for? */
TOOLS_FN int units_want(const answer_units *u, uint64_t i)
{
    return !u || !u->wanted || (i / UNITS_OF_BLOCK < u->n_wanted && u->wanted[i / UNITS_OF_BLOCK]);
}

/* Joins n digests to one, which becomes the first. */
TOOLS_FN void merkle_join(unsigned char *digests, size_t n)
{
    for (; n > 1; n = (n + 1) / 2)
        for (size_t i = 0; i < n; i += 2) {
            unsigned char *const to = digests + i / 2 * SHA256_SIZE,
                                 pair[1 + 2 * SHA256_SIZE] = {1};
            memcpy(pair + 1, digests + i * SHA256_SIZE, (i + 1 < n ? 2 : 1) * (size_t)SHA256_SIZE);
            if (i + 1 < n)
                sha256_of(to, pair, sizeof pair);
            else
                memcpy(to, pair + 1, SHA256_SIZE);
        }
}

TOOLS_FN void end_block(answer_units *u, size_t n)
{
    merkle_join(u->leaves, n);
    out_bytes(&u->blocks, (const char *)u->leaves, SHA256_SIZE);
    out_bytes(&u->ends, (const char *)&u->latest, sizeof u->latest);
}

TOOLS_FN void end_unit(answer_units *u)
{
    sha256_end(&u->leaf, u->leaves + u->n % UNITS_OF_BLOCK * SHA256_SIZE);
    u->is_open = 0;
    if (++u->n % UNITS_OF_BLOCK == 0)
        end_block(u, UNITS_OF_BLOCK);
}

TOOLS_FN void unit_text(answer_units *u, const char *text, size_t size)
{
    if (!u->is_open) {
        sha256_begin(&u->leaf);
        sha256_add(&u->leaf, "", 1);
        u->is_open = 1;
    }
    sha256_add(&u->leaf, text, size);
}

/* Adds a row; the names of the table and its columns if row is SIZE_MAX. */
TOOLS_FN void unit_row(answer_units *u, const answer_table *t, size_t row)
{
    json_out *const o = &u->row;
    int follows = 0;
    u->latest.table = t->name;
    u->latest.row = row == SIZE_MAX ? u->latest.row : row;
    o->size = 0;
    if (row == SIZE_MAX) {
        out_bytes(o, t->name, strlen(t->name));
        out_bytes(o, "\n", 1);
    }
    for (size_t i = 0; i < t->n_columns; i++) {
        const answer_column *const c = &t->columns[i];
        if (c->is_inexact)
            continue;
        out_bytes(o, ",", (size_t)follows);
        follows = 1;
        if (row == SIZE_MAX)
            answer_csv_text(o, c->name, strlen(c->name));
        else
            answer_csv_value(o, t, c, row);
    }
    out_bytes(o, "\n", 1);
    unit_text(u, o->text, o->failed ? 0 : o->size);
}

/* Adds the line of the SHA-256 of numbers as f32 bits. */
TOOLS_FN void unit_floats(answer_units *u, const float *numbers, size_t n)
{
    unsigned char digest[SHA256_SIZE];
    char line[SHA256_HEX];
    sha256_floats(digest, numbers, n);
    sha256_hex(line, digest, SHA256_SIZE);
    line[SHA256_HEX - 1] = '\n';
    unit_text(u, line, SHA256_HEX);
}

/* Adds a large tensor, the last column of its table. */
TOOLS_FN void unit_dense(answer_units *u, const answer_table *t)
{
    const answer_column *const c = &t->columns[t->n_columns - 1];
    unsigned char bits[1024 * 4], digest[SHA256_SIZE];
    char hex[SHA256_HEX], line[24];
    const size_t n = answer_n_rows(t);
    sha256 of;
    sha256_begin(&of);
    for (size_t row = 0, used = 0; row < n; row++) {
        const float x = (float)answer_number(t, c, row);
        uint32_t word;
        memcpy(&word, &x, sizeof word);
        put_u32(bits + used, word);
        used += 4;
        if (used == sizeof bits || row + 1 == n) {
            sha256_add(&of, bits, used);
            used = 0;
        }
    }
    sha256_end(&of, digest);
    sha256_hex(hex, digest, SHA256_SIZE);
    unit_text(u, t->name, strlen(t->name));
    for (int i = 0; i < t->n_axes; i++)
        unit_text(u, line, (size_t)snprintf(line, sizeof line, i ? " %zu" : "\n%zu", t->axes[i]));
    unit_text(u, "\n", 1);
    unit_text(u, hex, SHA256_HEX - 1);
    unit_text(u, "\n", 1);
}

/* Adds a whole answer: all of it as one unit, or each row as one. */
TOOLS_FN void unit_answer(answer_units *u, const answer *a, int by_row)
{
    for (size_t i = 0; i < a->n_tables; i++) {
        const answer_table *const t = a->tables[i];
        const size_t n = t->is_dense ? 0 : answer_n_rows(t);
        if (t->is_dense)
            unit_dense(u, t);
        else if (!by_row)
            unit_row(u, t, SIZE_MAX);
        if (t->is_dense && by_row)
            end_unit(u);
        for (size_t row = 0; row < n; row++) {
            if (by_row)
                unit_row(u, t, SIZE_MAX);
            unit_row(u, t, row);
            if (by_row)
                end_unit(u);
        }
    }
    if (!by_row)
        end_unit(u);
}

/* Completes units until there are n: those that had no rows have the names of the table. */
TOOLS_FN void units_to(answer_units *u, const answer_table *t, uint64_t n)
{
    while (u->n < n) {
        if (!u->is_open && t)
            unit_row(u, t, SIZE_MAX);
        unit_text(u, "", 0);
        end_unit(u);
    }
}

/* After the last unit: the root of the tree. Returns the number of blocks; 0 without memory, or without units. */
TOOLS_FN size_t units_root(answer_units *u, unsigned char *root)
{
    if (u->n % UNITS_OF_BLOCK)
        end_block(u, u->n % UNITS_OF_BLOCK);
    size_t n = u->blocks.size / SHA256_SIZE;
    unsigned char *nodes = u->blocks.failed || u->ends.failed || u->row.failed
                               ? NULL
                               : (unsigned char *)malloc(u->blocks.size + 1);
    if (!nodes)
        return 0;
    memcpy(nodes, u->blocks.text, u->blocks.size);
    merkle_join(nodes, n);
    memcpy(root, nodes, n ? SHA256_SIZE : 0);
    free(nodes);
    return n;
}

TOOLS_FN void units_free(answer_units *u)
{
    out_free(&u->blocks);
    out_free(&u->ends);
    out_free(&u->row);
}

#endif
