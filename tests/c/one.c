/* One file of a program of two, with the implementation. */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#ifdef __cplusplus
extern "C"
#endif
    void
    emit_elsewhere(void);

int main(void) {
    tailrace_connect(NULL, NULL);
    tailrace_event("here");
    emit_elsewhere();
    return 0;
}
