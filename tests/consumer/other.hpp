#pragma once

#include <string>

std::string version_of_other();
