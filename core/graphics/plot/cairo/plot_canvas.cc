// Implements PlotCanvas with Cairo's image and SVG surfaces.
#include "core/graphics/plot/cairo/plot_canvas.h"

#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/utf8.h"

namespace troop {
namespace {

// Debian's default font. Fontconfig replaces it by the nearest one that is installed; without any
// font Cairo has built-in outlines of ASCII.
constexpr char kFont[] = "DejaVu Sans";
// Verdana has nearly the same widths: for viewers of SVG files.
constexpr char kSvgFonts[] = "DejaVu Sans, Verdana, sans-serif";

// Text for Cairo and XML, both of which reject invalid UTF-8.
std::string Printable(std::string_view text) {
  return PrintableLine(text, std::numeric_limits<std::size_t>::max());
}

// Escapes the characters that have a meaning in XML.
std::string EscapedXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Cairo's sink of the SVG file.
cairo_status_t AppendBytes(void* out, const unsigned char* bytes, unsigned int size) {
  static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(bytes), size);
  return CAIRO_STATUS_SUCCESS;
}

const char* AnchorName(PlotText::Anchor anchor) {
  return anchor == PlotText::Anchor::kStart    ? "start"
         : anchor == PlotText::Anchor::kMiddle ? "middle"
                                               : "end";
}

}  // namespace

// Cairo's objects, and what Cairo does not write itself.
struct PlotCanvas::Drawing {
  Format format;
  int width, height;
  std::string svg;    // the file so far, written by Cairo
  std::string texts;  // SVG text elements
  cairo_surface_t* surface = nullptr;
  cairo_t* context = nullptr;

  void SetColor(Color color, double opacity) {
    cairo_set_source_rgba(context, color.red / 255.0, color.green / 255.0, color.blue / 255.0,
                          opacity);
  }
  // Begins a path through the points.
  void SetPath(std::span<const PlotPoint> points) {
    cairo_new_path(context);
    for (const PlotPoint& point : points) cairo_line_to(context, point.x, point.y);
  }
  // Finishes the surface. Errors: kInternal.
  Status Finish() {
    // Errors stick to Cairo's objects, so one check at the end covers all calls before.
    cairo_surface_finish(surface);
    for (const cairo_status_t status : {cairo_status(context), cairo_surface_status(surface)}) {
      if (status != CAIRO_STATUS_SUCCESS) {
        return Internal("the plot can't be drawn: Cairo: {}", cairo_status_to_string(status));
      }
    }
    return Status::Ok();
  }
};

// Subpixel colors and hinting are off: both depend on the screen of the machine.
PlotCanvas::PlotCanvas(Format format, int width, int height)
    : drawing_(std::make_unique<Drawing>(Drawing{format, width, height, {}, {}})) {
  // Cairo's images end at 32,767 pixels; this limit also bounds the memory to 1 GiB.
  TROOP_CHECK(width > 0 && width <= 16384 && height > 0 && height <= 16384, "a canvas of {} x {}",
              width, height);
  if (format == Format::kSvg) {
    drawing_->surface =
        cairo_svg_surface_create_for_stream(AppendBytes, &drawing_->svg, width, height);
    cairo_svg_surface_set_document_unit(drawing_->surface, CAIRO_SVG_UNIT_PX);
  } else {
    drawing_->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
  }
  cairo_t* const context = drawing_->context = cairo_create(drawing_->surface);
  cairo_font_options_t* const options = cairo_font_options_create();
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_set_font_options(context, options);
  cairo_font_options_destroy(options);
  cairo_select_font_face(context, kFont, CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  // Round joins do not overshoot at sharp peaks, as mitered ones do.
  cairo_set_line_cap(context, CAIRO_LINE_CAP_ROUND);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  FillBox({0, 0, double(width), double(height)}, {255, 255, 255});
}

PlotCanvas::~PlotCanvas() {
  cairo_destroy(drawing_->context);
  cairo_surface_destroy(drawing_->surface);
}

void PlotCanvas::FillBox(const PlotBox& box, Color color, double opacity) {
  drawing_->SetColor(color, opacity);
  cairo_rectangle(drawing_->context, box.left, box.top, box.width(), box.height());
  cairo_fill(drawing_->context);
}

void PlotCanvas::FillPolygon(std::span<const PlotPoint> points, Color color, double opacity) {
  drawing_->SetColor(color, opacity);
  drawing_->SetPath(points);
  cairo_close_path(drawing_->context);
  cairo_fill(drawing_->context);
}

// Cairo draws a closed path of length 0 as a dot.
void PlotCanvas::DrawLine(std::span<const PlotPoint> points, const PlotPen& pen) {
  drawing_->SetColor(pen.color, pen.opacity);
  drawing_->SetPath(points);
  if (points.size() == 1) cairo_close_path(drawing_->context);
  cairo_set_line_width(drawing_->context, pen.width);
  cairo_stroke(drawing_->context);
}

void PlotCanvas::DrawText(PlotPoint at, std::string_view text, const PlotText& style) {
  if (text.empty()) return;
  const std::string line = Printable(text);
  // SVG texts are elements, so that they stay selectable and small. Cairo would write outlines.
  if (drawing_->format == Format::kSvg) {
    const std::string turn =
        style.upward ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", at.x, at.y) : "";
    drawing_->texts += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"{}\" "
        "fill=\"#{:02x}{:02x}{:02x}\"{}>{}</text>\n",
        at.x, at.y, style.size, AnchorName(style.anchor), style.color.red, style.color.green,
        style.color.blue, turn, EscapedXml(line));
    return;
  }
  const double width = TextWidth(line, style.size);
  // Distance from the anchor to the left end of the text, in pixels.
  const double before = style.anchor == PlotText::Anchor::kStart    ? 0
                        : style.anchor == PlotText::Anchor::kMiddle ? width / 2
                                                                    : width;
  cairo_t* const context = drawing_->context;
  cairo_save(context);
  cairo_translate(context, at.x, at.y);
  // Rotated around the anchor, so that "before" also holds upward.
  if (style.upward) cairo_rotate(context, -M_PI / 2);
  cairo_move_to(context, -before, 0);
  drawing_->SetColor(style.color, 1);
  cairo_show_text(context, line.c_str());
  cairo_restore(context);
}

double PlotCanvas::TextWidth(std::string_view text, double size) {
  cairo_set_font_size(drawing_->context, size);
  cairo_text_extents_t extents{};
  cairo_text_extents(drawing_->context, Printable(text).c_str(), &extents);
  return extents.x_advance;
}

// CAIRO_FORMAT_RGB24 has one 32-bit number per pixel in the byte order of the machine.
Result<Picture> PlotCanvas::TakePixels() {
  TROOP_CHECK(drawing_->format == Format::kPixels, "pixels of an SVG drawing");
  cairo_surface_flush(drawing_->surface);
  Picture picture{.width = drawing_->width, .height = drawing_->height, .rgb = {}};
  const unsigned char* const bytes = cairo_image_surface_get_data(drawing_->surface);
  // Rows may be padded, so the stride is not 4 * width.
  const int stride = cairo_image_surface_get_stride(drawing_->surface);
  picture.rgb.reserve(std::size_t(3) * std::size_t(picture.width) * std::size_t(picture.height));
  for (int y = 0; bytes != nullptr && y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      std::uint32_t pixel = 0;
      std::memcpy(&pixel, bytes + std::ptrdiff_t(y) * stride + std::ptrdiff_t(4) * x, 4);
      picture.rgb.push_back(std::uint8_t(pixel >> 16));
      picture.rgb.push_back(std::uint8_t(pixel >> 8));
      picture.rgb.push_back(std::uint8_t(pixel));
    }
  }
  TROOP_RETURN_IF_ERROR(drawing_->Finish());
  return picture;
}

// Inserts the texts as the last elements. Drops the XML declaration, as UTF-8 is the default, and
// the name of the surface, a counter of the process: equal plots give equal files.
Result<std::string> PlotCanvas::TakeSvg() {
  TROOP_CHECK(drawing_->format == Format::kSvg, "an SVG file of pixels");
  TROOP_RETURN_IF_ERROR(drawing_->Finish());
  std::string svg = std::move(drawing_->svg);
  if (const std::size_t name = svg.find(" id=\"surface"); name != svg.npos) {
    svg.erase(name, svg.find('"', name + 5) + 1 - name);
  }
  const std::size_t end = svg.rfind("</svg>");
  const std::size_t begin = svg.find("<svg ");
  TROOP_CHECK(begin < end && end != svg.npos, "Cairo wrote an SVG file without an svg element");
  return fmt::format("{}<g font-family=\"{}\">\n{}</g>\n</svg>\n",
                     std::string_view(svg).substr(begin, end - begin), kSvgFonts, drawing_->texts);
}

}  // namespace troop
