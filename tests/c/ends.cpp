/* Emits where a C++ program may: before main, in functions of atexit, in destructors; and after an explicit close, with
 * the word `close`. */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

namespace {

struct emitting {
    emitting(const char *early, const char *late) : late_(late) {
        if (early) tailrace_event(early);
    }
    emitting(const emitting &) = delete;
    emitting &operator=(const emitting &) = delete;
    ~emitting() { tailrace_event(late_); }

  private:
    const char *late_;
};

emitting global("initialiser", "destructor of a global");
tailrace_span over_connect = tailrace_begin("begun before connect");

void registered() { tailrace_event("atexit before connect"); }

__attribute__((destructor)) void at_the_very_end() { tailrace_event("function with the attribute destructor"); }

} // namespace

int main(int count, char **words) {
    std::atexit(registered);
    tailrace_connect(words[1], nullptr);
    static emitting late(nullptr, "destructor of a static");
    tailrace_event("main");
    tailrace_end(&over_connect);
    if (count > 2) tailrace_close();
}
