package status

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-storage/holdfast/printable"
)

// Style is how a report is drawn.
type Style struct {
	// Width and Height are those of the terminal. 0: as wide as it needs be; as high as most terminals are at least.
	Width, Height int
	// Unicode allows more than ASCII.
	Unicode bool
	Colour  bool
	// All leaves nothing out, and cuts nothing.
	All bool
}

// colour is a colour as terminals number it.
type colour string

const (
	none   colour = ""
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	bold   colour = "1"
)

// cell is a word in a table.
type cell struct {
	text string
	colour
}

func words(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i] = cell{text: text}
	}
	return cells
}

// lines draws rows in columns, each as wide as it needs be. What others wrote is kept on one line.
func (s Style) lines(rows [][]cell) []string {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i].text = cmp.Or(printable.Line(row[i].text), "-")
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		for i := range row[:len(row)-1] {
			row[i].text += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i].text)+2)
		}
		lines = append(lines, s.line(row...))
	}
	return lines
}

// line puts cells beside each other, as far as they fit.
func (s Style) line(cells ...cell) string {
	var b strings.Builder
	room := s.Width
	for i, c := range cells {
		text := c.text
		if s.cuts() {
			text = s.cut(text, room)
			room -= utf8.RuneCountInString(text)
		}
		if i == len(cells)-1 {
			text = strings.TrimRight(text, " ")
		}
		if s.Colour && c.colour != none && text != "" {
			text = "\x1b[" + string(c.colour) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	return b.String()
}

func (s Style) cuts() bool { return s.Width > 0 && !s.All }

func (s Style) cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	more := []rune(s.glyphs().more)
	if width < len(more) {
		return string(runes[:max(width, 0)])
	}
	return string(runes[:width-len(more)]) + string(more)
}

// wrap breaks a text between words, into lines that fit.
func (s Style) wrap(text string) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(printable.Line(text)) {
		if s.cuts() && line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > s.Width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
