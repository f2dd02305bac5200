// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

// Line plots as SVG, without any library. Pure functions.

namespace specwire::cli::bench {

// A measured value at one of the plot's places.
struct PlotPoint {
  // Index into Plot::places.
  size_t place = 0;
  double value = 0;
  // Ends of its interval.
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;
};

struct PlotLine {
  std::string name;
  // Ascending by place.
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  // What stands below the x axis, evenly spaced whatever the values are.
  std::vector<std::string> places;
  std::vector<PlotLine> lines;
  // A value to compare with, drawn across.
  double reference = 1;
};

// One picture of all plots, below each other, 720 units wide and without a
// background: text and axes take the colour of the reader's light or dark
// scheme. Values that are no numbers are left out.
// REQUIRES: places are inside their plots.
std::string PlotsSvg(const std::vector<Plot>& plots);

// Round numbers that cover [low, high] in three to eight steps, ascending.
// REQUIRES: low < high, both finite.
std::vector<double> RoundTicks(double low, double high);

}  // namespace specwire::cli::bench
