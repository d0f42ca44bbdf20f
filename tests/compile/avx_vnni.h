/* AVX-VNNI's dot products under the encoding of AVX-512 VNNI: a processor that has only the latter
 * runs the kernels written for the former. For tests/platforms/portability.sh. */
#define _DEFAULT_SOURCE /* as tools/common/system.h, which comes too late for the headers below */
#include <immintrin.h>
#define _mm256_dpbusd_avx_epi32 _mm256_dpbusd_epi32
