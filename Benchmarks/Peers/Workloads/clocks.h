#pragma once

#include "workloads.h"

#include <time.h>

int64_t random_below(uint64_t limit);
void sort_numbers(int64_t *numbers, size_t count);
double microseconds_at(const int64_t *sorted, size_t count, double percent);
