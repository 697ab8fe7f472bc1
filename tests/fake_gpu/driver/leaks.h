// What a process has not given back.
#pragma once

namespace fake {

// Prints one line on standard error if anything is left.
void report_leaks();

}
