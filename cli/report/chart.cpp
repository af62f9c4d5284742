#include "cli/report/chart.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "cli/report/html.hpp"

namespace ce::cli {
namespace {

struct Scale {
  double low = 0, high = 1;

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] double fraction(double value) const { return (value - low) / (high - low); }
};

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart), y_{chart.low, chart.high} {
    bool first = true;
    for (const ChartLine& line : chart.lines)
      for (const ChartPoint& point : line.points) {
        const double x = scaled(point.x);
        if (first) x_ = {x, x};
        first = false;
        x_.take(x);
        y_.take(point.y);
      }
    if (x_.low == x_.high) x_ = {x_.low - 1, x_.high + 1};
    step_ = step_for(y_.high - y_.low);
    y_.low = step_ * std::floor(y_.low / step_ + 1e-9);
    y_.high = step_ * std::ceil(y_.high / step_ - 1e-9);
  }

  std::string html() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
        "role=\"img\"><title>{}</title>\n",
        width, height, escaped(chart_.title));
    y_axis();
    if (chart_.x_axis == XAxis::columns)
      column_axis();
    else
      day_axis();
    if (chart_.level)
      out_ += fmt::format("<path class=\"level\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, down(*chart_.level),
                          width - right);
    marks();
    for (const ChartLine& line : chart_.lines) draw(line);
    return out_ + "</svg>\n" + legend();
  }

 private:
  static constexpr double width = 400, height = 220, left = 46, right = 24, top = 14, bottom = 26;
  static constexpr double day_label = 74, column_label = 46;  ///< width of labels, with some margin

  [[nodiscard]] double scaled(double x) const {
    return chart_.x_axis == XAxis::columns ? std::log2(std::max(x, 1.)) : x;
  }
  [[nodiscard]] double across(double placed) const {
    return left + (width - left - right) * x_.fraction(placed);
  }
  [[nodiscard]] double down(double y) const {
    return height - bottom - (height - top - bottom) * y_.fraction(y);
  }

  void write(double x, double y, std::string_view anchor, std::string_view words) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                        escaped(words));
  }

  void y_axis() {
    for (double y = y_.low; y <= y_.high + step_ / 2; y += step_) {
      out_ +=
          fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, down(y), width - right);
      write(left - 6, down(y) + 4, "end",
            chart_.y_axis == YAxis::percent ? fmt::format("{:.3g}%", 100 * y) : fmt::format("{:.4g}", y));
    }
  }

  void tick(double placed, std::string_view label) {
    const double x = across(placed);
    out_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, height - bottom);
    write(x, height - 8, "middle", label);
  }

  /// Powers of two, as many as fit with their labels.
  void column_axis() {
    const int first = static_cast<int>(std::ceil(x_.low - 1e-9)),
              last = static_cast<int>(std::floor(x_.high + 1e-9));
    const double room = (width - left - right) / column_label;
    const int apart = std::max(1, static_cast<int>(std::ceil((x_.high - x_.low) / room)));
    for (int power = first; power <= last; power += apart)
      tick(power, fmt::format("{:.10g}", std::exp2(power)));
  }

  /// Starts of days in UTC, as many as fit.
  void day_axis() {
    constexpr double day = 24 * 60 * 60;
    const double room = std::floor((width - left - right) / day_label);
    const double apart = day * std::max(1., std::ceil((x_.high - x_.low) / day / room));
    for (double at = day * std::ceil(x_.low / day); at <= x_.high; at += apart) {
      // The label of a tick at the edge would be cut off.
      if (across(at) < day_label / 2 || across(at) > width - day_label / 2) continue;
      tick(at, fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(at))));
    }
  }

  void marks() {
    double free_from = 0;
    for (const ChartMark& mark : chart_.marks) {
      const double x = across(scaled(mark.x)), letter = 6;
      out_ += fmt::format("<path class=\"mark\" d=\"M{:.1f} {:.1f}V{:.1f}\"><title>{}</title></path>\n", x,
                          top, height - bottom, escaped(mark.label));
      const double wide = letter * static_cast<double>(mark.label.size());
      const double begin = std::clamp(x - wide / 2, 0., std::max(0., width - wide));
      if (begin < free_from || wide > width) continue;
      write(begin + wide / 2, top - 4, "middle", mark.label);
      free_from = begin + wide + letter;
    }
  }

  void draw(const ChartLine& line) {
    std::string path, dots;
    for (const ChartPoint& point : line.points) {
      const double x = across(scaled(point.x)), y = down(point.y);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
      dots += fmt::format(
          "<circle data-p=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.4\"><title>{}</title></circle>\n",
          point.problem, x, y, escaped(point.tip));
    }
    out_ += fmt::format("<g class=\"series {}\"><path d=\"{}\"/>\n{}</g>\n", line.look, path, dots);
  }

  [[nodiscard]] std::string legend() const {
    std::string entries;
    for (const ChartLine& line : chart_.lines)
      if (!line.label.empty())
        entries += fmt::format("<li class=\"{}\">{}</li>\n", line.look, escaped(line.label));
    return entries.empty() ? "" : "<ul class=\"legend\">\n" + entries + "</ul>\n";
  }

  const Chart& chart_;
  Scale x_, y_;
  double step_ = 1;
  std::string out_;
};

}  // namespace

double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {1., 2., 2.5, 5.})
    if (power * factor * 5 >= most * (1 - 1e-9)) return power * factor;
  return power * 10;
}

std::string html_of(const Chart& chart) { return Drawing(chart).html(); }

}  // namespace ce::cli
