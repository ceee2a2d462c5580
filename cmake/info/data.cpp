#include <zlib.h>

#include "found.hpp"

std::string info::data() { return std::string("zlib ") + zlibVersion(); }
