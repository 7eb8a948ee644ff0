/* The forms of a call that take attributes one by one, in C and in C++. */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <assert.h>

static int evaluated;

static uint64_t once(uint64_t value) {
    evaluated++;
    return value;
}

#define A(n) tailrace_u64("a", n)
#define EIGHT(n) A(n), A(n + 1), A(n + 2), A(n + 3), A(n + 4), A(n + 5), A(n + 6), A(n + 7)
#define ALL EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)

int main(void) {
    tailrace_span span = tailrace_begin("off");
    tailrace_event("off", tailrace_u64("a", once(1)));
    tailrace_end(&span);
    assert(!evaluated && !tailrace_is_on());

    tailrace_connect(NULL, NULL);
    tailrace_end(&span); /* begun while off */

    tailrace_event("event");
    span = tailrace_begin("end");
    tailrace_end(&span);
    tailrace_end(&span); /* it has ended */
    tailrace_counter("counter", 1.5);
    tailrace_write("write", tailrace_now(), tailrace_now());

    tailrace_event("event", tailrace_u64("a", once(1)));
    assert(evaluated == 1);
    span = tailrace_begin("end");
    tailrace_end(&span, A(1));
    tailrace_counter("counter", 1.5, A(1));
    tailrace_write("write", tailrace_now(), tailrace_now(), A(1));

    tailrace_event("event", A(1), A(2));
    span = tailrace_begin("end");
    tailrace_end(&span, A(1), A(2));
    tailrace_counter("counter", 1.5, A(1), A(2));
    tailrace_write("write", tailrace_now(), tailrace_now(), A(1), A(2));

    tailrace_event("event", ALL);
    span = tailrace_begin("end");
    tailrace_end(&span, ALL);
    tailrace_counter("counter", 1.5, ALL);
    tailrace_write("write", tailrace_now(), tailrace_now(), ALL);

#ifdef __cplusplus
    {
        tailrace::span bare("bare guard");
        tailrace::span guard("guard", A(1), tailrace_str("s", "text"));
    }
#endif
    return 0;
}
