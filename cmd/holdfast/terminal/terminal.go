// Package terminal writes for people: whole screens and lines that are rewritten on a terminal, plain lines elsewhere.
package terminal

import (
	"cmp"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Terminal is one on which the cursor can be moved.
type Terminal struct{ file *os.File }

// Of is the terminal that w writes to; nil if that is none, or can only be written line by line.
func Of(w io.Writer) *Terminal {
	file, ok := w.(*os.File)
	if kind := os.Getenv("TERM"); !ok || !term.IsTerminal(int(file.Fd())) || kind == "" || kind == "dumb" {
		return nil
	}
	return &Terminal{file}
}

// The size that is assumed of a terminal that does not report it.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Size is how many columns and lines fit.
func (t *Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(int(t.file.Fd()))
	if err != nil {
		return usualWidth, usualHeight
	}
	return cmp.Or(width, usualWidth), cmp.Or(height, usualHeight)
}

// Colour says whether there may be colours. https://no-color.org has the rule.
func (t *Terminal) Colour() bool { return t != nil && os.Getenv("NO_COLOR") == "" }

// Unicode says whether the reader, be that a terminal or not, can show more than ASCII, by the rules for locales.
func Unicode() bool {
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	name := strings.ToLower(strings.ReplaceAll(locale, "-", ""))
	return strings.Contains(name, "utf8") && os.Getenv("TERM") != "dumb"
}
