// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace specwire::cli::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// An XML reader for what PlotsSvg may write: elements, attributes in double
// quotes, text with the four entities. Empty if all is well.
std::string Fault(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag(
      R"re(^<(/?)([a-z]+)((?: [A-Za-z0-9:-]+="[^"<]*")*)(/?)>)re");
  const std::regex text(R"re(^(?:[^<&]|&(?:amp|lt|gt|quot);)+)re");
  for (auto at = xml.begin(); at != xml.end();) {
    std::smatch match;
    // Flags keep the search at the front; the style is text.
    if (std::regex_search(at,
                          xml.end(),
                          match,
                          *at == '<' ? tag : text,
                          std::regex_constants::match_continuous)) {
      at += match.length();
    } else {
      return absl::StrCat("at ", std::string(at, std::min(at + 40, xml.end())));
    }
    if (match.size() == 1) {
      if (open.empty() && match.str() != "\n") return "text outside";
    } else if (match[1].length() > 0) {
      if (open.empty() || open.back() != match[2]) return "tags cross";
      open.pop_back();
    } else if (match[4].length() == 0) {
      open.push_back(match[2]);
    }
  }
  return open.empty() ? "" : absl::StrCat(open.back(), " is open");
}

std::vector<double> Numbers(const std::string& svg, const std::string& name) {
  const std::regex attribute(absl::StrCat(" ", name, "=\"([-0-9.e]+)\""));
  std::vector<double> numbers;
  for (std::sregex_iterator at(svg.begin(), svg.end(), attribute), end;
       at != end;
       ++at) {
    numbers.push_back(std::stod((*at)[1]));
  }
  return numbers;
}

Plot MakePlot() {
  Plot plot;
  plot.title = "Speed-up <by> \"round trip\" & more";
  plot.x_label = "round trip";
  plot.y_label = "speed-up";
  plot.places = {"0", "0.2", "3"};
  plot.lines = {{"hybrid", {{0, 1.5, 1.4, 1.6}, {1, 1.3}, {2, 0.97, 0.9, 1}}},
                {"suffix & co", {{0, 1.2}, {2, 0.6}}}};
  return plot;
}

TEST(PlotTest, IsWellFormedWhateverTheTextsAre) {
  EXPECT_EQ(Fault("<a b=\"c\">d &amp; e<f/></a>\n"), "");
  for (const char* broken : {"<a>", "<a></b>", "<a>&</a>", "<a b=c/>", "x"}) {
    EXPECT_NE(Fault(broken), "") << broken;
  }
  const std::string svg = PlotsSvg({MakePlot(), MakePlot()});
  EXPECT_EQ(Fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("&lt;by&gt; &quot;round trip&quot; &amp; more"));
}

TEST(PlotTest, LabelsTicksAndNamesAreThere) {
  const std::string svg = PlotsSvg({MakePlot()});
  for (const char* text : {">round trip<",
                           ">speed-up<",
                           ">0<",
                           ">0.2<",
                           ">3<",
                           ">hybrid<",
                           ">suffix &amp; co<",
                           ">1.2<",
                           "prefers-color-scheme: dark",
                           "currentColor"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
}

TEST(PlotTest, EveryPointIsInsideAndInItsPlace) {
  const std::string svg = PlotsSvg({MakePlot()});
  const std::vector<double> xs = Numbers(svg, "cx");
  const std::vector<double> ys = Numbers(svg, "cy");
  ASSERT_EQ(xs.size(), 5u);
  ASSERT_EQ(ys.size(), 5u);
  for (size_t i = 0; i < xs.size(); ++i) {
    EXPECT_GT(xs[i], 64);
    EXPECT_LT(xs[i], 560);
    EXPECT_GE(ys[i], 44);
    EXPECT_LE(ys[i], 336);
  }
  // Places from left to right, greater values higher.
  EXPECT_LT(xs[0], xs[1]);
  EXPECT_LT(xs[1], xs[2]);
  EXPECT_EQ(xs[3], xs[0]);
  EXPECT_EQ(xs[4], xs[2]);
  EXPECT_LT(ys[0], ys[1]);
  EXPECT_LT(ys[1], ys[3]);
  EXPECT_LT(ys[3], ys[2]);
  EXPECT_LT(ys[2], ys[4]);
  EXPECT_THAT(Numbers(svg, "width"), ElementsAre(720));
}

TEST(PlotTest, LeavesOutWhatIsNoNumber) {
  Plot plot = MakePlot();
  plot.lines[0].points[1].value = std::nan("");
  plot.lines[1].points = {{0, std::numeric_limits<double>::infinity()}};
  const std::string svg = PlotsSvg({plot});
  EXPECT_EQ(Fault(svg), "");
  EXPECT_EQ(Numbers(svg, "cx").size(), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, Not(HasSubstr("suffix")));
}

TEST(PlotTest, NothingToPlotIsAnEmptyFrame) {
  Plot plot;
  plot.places = {"0"};
  EXPECT_EQ(Fault(PlotsSvg({plot})), "");
  EXPECT_EQ(Fault(PlotsSvg({})), "");
}

TEST(PlotTest, ManyLinesMakeRoomForTheirNames) {
  Plot plot = MakePlot();
  while (plot.lines.size() < 30) plot.lines.push_back(plot.lines[0]);
  const std::string svg = PlotsSvg({plot});
  const double height = Numbers(svg, "height")[0];
  for (double y : Numbers(svg, "y")) EXPECT_LT(y, height);
}

TEST(RoundTicksTest, CoverTheRangeInAFewRoundSteps) {
  EXPECT_THAT(RoundTicks(0.6, 1.6),
              ElementsAre(testing::DoubleEq(0.6),
                          testing::DoubleEq(0.8),
                          testing::DoubleEq(1),
                          testing::DoubleEq(1.2),
                          testing::DoubleEq(1.4),
                          testing::DoubleEq(1.6)));
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {0.999, 1.001}, {1, 7}, {-3, 400}, {0.97, 2.31}}) {
    const std::vector<double> ticks = RoundTicks(low, high);
    EXPECT_GE(ticks.size(), 3u);
    EXPECT_LE(ticks.size(), 9u);
    EXPECT_LE(ticks.front(), low + 1e-9);
    EXPECT_GE(ticks.back(), high - 1e-9);
    EXPECT_GT(ticks[1], low);
  }
}

}  // namespace
}  // namespace specwire::cli::bench
