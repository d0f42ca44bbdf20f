/* sh tools/lens/program/draw/embed.sh >lens_embedded.h && cc tools/lens/library.c -I. -O2 -fopenmp -shared -fPIC -lm -o libattn.so
 *
 * The shared library, for Python and other languages: attn.h, the research headers of this folder and
 * surprisal, whose functions it exports too. (A C or C++ program includes those headers, with any libattn.) */
#include "tools/common/system.h"
#if defined(__GNUC__)
#define ATTN_API extern __attribute__((visibility("default")))
#else
#define ATTN_API extern
#endif
#define LENS_FN ATTN_API
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "circuits.h"
#include "control.h"
#include "curve.h"
#include "decompose.h"
#include "detect.h"
#include "edges.h"
#include "exact.h"
#include "graph_check.h"
#include "graph_files.h"
#include "graph_prune.h"
#include "heads.h"
#include "interaction.h"
#include "logits.h"
#include "patch.h"
#include "paths.h"
#include "process_weights.h"
#include "prune.h"
#include "qk.h"
#include "sae_files.h"
#include "save.h"
#include "spectrum.h"
#include "spread.h"
#include "steering.h"
#include "tuned.h"
#include "../write/writer.h"
#include "program/draw/shared.h"
#define PROGRAM "libattn"
#define INPUT   "text"
#include "tools/receipt/shared.h"
#include "tools/convert/asked.h"
#include "tools/convert/download.h"
#define OTHER_PROGRAMS &asked_convert, &asked_download,
#include "tools/waist/programs.h"
