// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace specwire::cli {

// The cells of one line.
using TableRow = std::vector<std::string>;

// Rows of equally many cells as lines, columns two spaces apart; each line ends
// with a line break and without spaces.
std::string TableText(const std::vector<TableRow>& rows);

}  // namespace specwire::cli
