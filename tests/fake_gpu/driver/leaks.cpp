#include "leaks.h"
#include "memory.h"
#include "modules.h"
#include "streams.h"

#include <cstdio>

namespace fake {

size_t live_events();
size_t live_graphs();

namespace {

void note(std::string& left, size_t count, const char* what) {
    if (count == 0) return;
    left += (left.empty() ? "" : ", ") + std::to_string(count) + " " + what;
}

void note_memory(std::string& left, Kind kind, const char* what) {
    size_t count = 0;
    memories().any([&](Allocation& one) {
        count += one.kind == kind;
        return false;
    });
    note(left, count, what);
}

}

void report_leaks() {
    std::string left;
    note_memory(left, Kind::Device, "device allocations");
    note_memory(left, Kind::Pool, "pool allocations");
    note_memory(left, Kind::Host, "host allocations");
    note_memory(left, Kind::Registered, "registered ranges");
    note_memory(left, Kind::Opened, "opened handles");
    note(left, streams().count(), "streams");
    note(left, live_events(), "events");
    note(left, live_graphs(), "graphs");
    note(left, modules().count(), "modules");
    note(left, retained_contexts(), "contexts");
    if (!left.empty()) fprintf(stderr, "fake driver: left at exit: %s\n", left.c_str());
}

}
