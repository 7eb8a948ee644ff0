/* The other file of a program of two: it only includes the header. */
#include "tailrace.h"

#ifdef __cplusplus
extern "C"
#endif
    void
    emit_elsewhere(void);

void emit_elsewhere(void) {
    tailrace_span span = tailrace_begin("elsewhere");
    tailrace_end(&span, tailrace_u64("file", 2));
}
