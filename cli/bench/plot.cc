// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace specwire::cli::bench {
namespace {

// The picture's measures.
constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 64;
constexpr double kRight = 560;
constexpr double kTop = 44;
constexpr double kBottom = 336;
constexpr double kLegendLeft = 580;
constexpr double kLegendStep = 22;
constexpr int kNumColours = 8;

// Lines differ in dashes too, for those who see no colours. The colours are
// Okabe and Ito's, which differ for the colour-blind; darker or lighter by
// scheme.
constexpr char kStyle[] =
    "<style>\n"
    "svg { color: #1f2328; font: 13px system-ui, sans-serif; }\n"
    "text { fill: currentColor; }\n"
    ".title { font-weight: 600; font-size: 15px; }\n"
    ".axis { stroke: currentColor; }\n"
    ".grid { stroke: currentColor; opacity: 0.15; }\n"
    ".reference { stroke: currentColor; stroke-dasharray: 2 4; }\n"
    ".line { fill: none; stroke-width: 2; }\n"
    ".interval { stroke-width: 1.5; opacity: 0.6; }\n"
    ".c0 { --c: #0072b2; } .c1 { --c: #d55e00; } .c2 { --c: #009e73; }\n"
    ".c3 { --c: #a3427b; } .c4 { --c: #8a6d00; } .c5 { --c: #2a7fb8; }\n"
    ".c6 { --c: #5b5b5b; } .c7 { --c: #9a3324; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "svg { color: #e6edf3; }\n"
    ".c0 { --c: #56b4e9; } .c1 { --c: #f0883e; } .c2 { --c: #2bd4a0; }\n"
    ".c3 { --c: #e394c4; } .c4 { --c: #f0e442; } .c5 { --c: #8ccbf5; }\n"
    ".c6 { --c: #b0b0b0; } .c7 { --c: #ff9a85; }\n"
    "}\n"
    ".line, .interval { stroke: var(--c); }\n"
    ".dot { fill: var(--c); }\n"
    ".s1 { stroke-dasharray: 8 4; } .s2 { stroke-dasharray: 3 3; }\n"
    ".s3 { stroke-dasharray: 10 3 2 3; }\n"
    "</style>\n";

std::string Escape(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML knows no other control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

std::string Text(double x,
                 double y,
                 absl::string_view attributes,
                 absl::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n",
                         x,
                         y,
                         attributes,
                         Escape(text));
}

std::string Line(
    absl::string_view css, double x0, double y0, double x1, double y1) {
  return absl::StrFormat(
      "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
      css,
      x0,
      y0,
      x1,
      y1);
}

// Where values lie in the picture.
class Frame {
 public:
  explicit Frame(const Plot& plot) : num_places_(plot.places.size()) {
    double low = plot.reference;
    double high = plot.reference;
    const auto cover = [&](double value) {
      if (!std::isfinite(value)) return;
      low = std::min(low, value);
      high = std::max(high, value);
    };
    for (const PlotLine& line : plot.lines) {
      for (const PlotPoint& point : line.points) {
        cover(point.value);
        cover(point.low.value_or(point.value));
        cover(point.high.value_or(point.value));
      }
    }
    if (!(low < high)) high = low + 1;
    ticks_ = RoundTicks(low, high);
  }

  const std::vector<double>& ticks() const { return ticks_; }
  double X(size_t place) const {
    const double step = (kRight - kLeft) / static_cast<double>(num_places_);
    return kLeft + (static_cast<double>(place) + 0.5) * step;
  }
  double Y(double value) const {
    const double share =
        (value - ticks_.front()) / (ticks_.back() - ticks_.front());
    return kBottom - std::clamp(share, 0.0, 1.0) * (kBottom - kTop);
  }

 private:
  size_t num_places_;
  std::vector<double> ticks_;
};

std::string Axes(const Plot& plot, const Frame& frame) {
  std::string svg = Text(kLeft, kTop - 20, "class=\"title\"", plot.title);
  for (const double tick : frame.ticks()) {
    const double y = frame.Y(tick);
    absl::StrAppend(&svg,
                    Line("grid", kLeft, y, kRight, y),
                    Text(kLeft - 8,
                         y + 4,
                         "text-anchor=\"end\"",
                         absl::StrFormat("%g", tick)));
  }
  absl::StrAppend(&svg,
                  Line("axis", kLeft, kBottom, kRight, kBottom),
                  Line("axis", kLeft, kTop, kLeft, kBottom));
  for (size_t i = 0; i < plot.places.size(); ++i) {
    const double x = frame.X(i);
    absl::StrAppend(
        &svg,
        Line("axis", x, kBottom, x, kBottom + 5),
        Text(x, kBottom + 20, "text-anchor=\"middle\"", plot.places[i]));
  }
  const double middle_x = (kLeft + kRight) / 2;
  const double middle_y = (kTop + kBottom) / 2;
  absl::StrAppend(
      &svg,
      Text(middle_x, kBottom + 44, "text-anchor=\"middle\"", plot.x_label),
      Text(16,
           middle_y,
           absl::StrFormat("text-anchor=\"middle\" "
                           "transform=\"rotate(-90 16 %.1f)\"",
                           middle_y),
           plot.y_label));
  const double reference = frame.Y(plot.reference);
  absl::StrAppend(&svg, Line("reference", kLeft, reference, kRight, reference));
  return svg;
}

std::string Curve(const PlotLine& line, size_t number, const Frame& frame) {
  const std::string colour = absl::StrCat("c", number % kNumColours);
  const std::string dashes =
      absl::StrCat("s", (number + number / kNumColours) % 4);
  std::string path;
  std::string marks;
  for (const PlotPoint& point : line.points) {
    if (!std::isfinite(point.value)) continue;
    const double x = frame.X(point.place);
    const double y = frame.Y(point.value);
    absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ", x, y);
    if (point.low && point.high) {
      absl::StrAppend(
          &marks,
          Line("interval", x, frame.Y(*point.low), x, frame.Y(*point.high)));
    }
    absl::StrAppendFormat(
        &marks,
        "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
        x,
        y);
  }
  if (path.empty()) return "";
  const double y = kTop + 8 + kLegendStep * static_cast<double>(number);
  return absl::StrCat(
      "<g class=\"",
      colour,
      "\">\n<polyline class=\"line ",
      dashes,
      "\" points=\"",
      path,
      "\"/>\n",
      marks,
      Line(absl::StrCat("line ", dashes), kLegendLeft, y, kLegendLeft + 24, y),
      Text(kLegendLeft + 32, y + 4, "class=\"name\"", line.name),
      "</g>\n");
}

// A legend that is longer than the plot makes it higher.
double HeightOf(const Plot& plot) {
  const double legend =
      kTop + kLegendStep * static_cast<double>(plot.lines.size() + 1);
  return std::max(kHeight, legend);
}

}  // namespace

std::vector<double> RoundTicks(double low, double high) {
  const double rough = (high - low) / 5;
  const double magnitude = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * magnitude;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * magnitude >= rough) step = factor * magnitude;
  }
  std::vector<double> ticks;
  const int64_t first = std::llround(std::floor(low / step + 1e-9));
  const int64_t last = std::llround(std::ceil(high / step - 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::string PlotsSvg(const std::vector<Plot>& plots) {
  double height = 0;
  for (const Plot& plot : plots) height += HeightOf(plot);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "width=\"%.0f\" height=\"%.0f\" role=\"img\">\n%s",
      kWidth,
      height,
      kWidth,
      height,
      kStyle);
  double top = 0;
  for (const Plot& plot : plots) {
    const Frame frame(plot);
    absl::StrAppendFormat(&svg, "<g transform=\"translate(0 %.0f)\">\n", top);
    absl::StrAppend(&svg, Axes(plot, frame));
    for (size_t i = 0; i < plot.lines.size(); ++i) {
      absl::StrAppend(&svg, Curve(plot.lines[i], i, frame));
    }
    absl::StrAppend(&svg, "</g>\n");
    top += HeightOf(plot);
  }
  return svg + "</svg>\n";
}

}  // namespace specwire::cli::bench
