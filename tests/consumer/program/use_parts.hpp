#pragma once

/// Calls the library of each part; true if all of them answer as they must.
bool use_parts();
