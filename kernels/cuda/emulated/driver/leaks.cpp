#include "leaks.h"
#include "memory.h"
#include "modules.h"
#include "streams.h"

#include <cstdio>

namespace fake {

size_t live_events();
size_t live_graphs();

namespace {

std::string left;

void note(size_t count, const char* what) {
    if (count == 0) return;
    left += (left.empty() ? "" : ", ") + std::to_string(count) + " " + what;
}

void note_memory(Kind kind, const char* what) {
    size_t count = 0;
    memories().any([&](Allocation& one) {
        count += one.kind == kind;
        return false;
    });
    note(count, what);
}

}

void report_leaks() {
    note_memory(Kind::Device, "device allocations");
    note_memory(Kind::Pool, "pool allocations");
    note_memory(Kind::Host, "host allocations");
    note_memory(Kind::Registered, "registered ranges");
    note_memory(Kind::Opened, "opened handles");
    note(streams().count(), "streams");
    note(live_events(), "events");
    note(live_graphs(), "graphs");
    note(modules().count(), "modules");
    note(retained_contexts(), "contexts");
    if (!left.empty()) fprintf(stderr, "fake driver: left at exit: %s\n", left.c_str());
}

}
