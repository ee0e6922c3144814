// Package printable makes text that others wrote safe for a terminal: the message of an event, of a condition or of a
// container may have escape sequences that clear the screen or hide what is shown.
package printable

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// Line returns a text in one line, with one space wherever there is white space or what a terminal would act on.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(valid(text), func(r rune) bool { return unicode.IsSpace(r) || acts(r) }), " ")
}

// Lines keeps line breaks, tabs and indentation.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && acts(r) {
			return ' '
		}
		return r
	}, valid(text))
}

// JSON escapes what encoding/json leaves as it is.
func JSON(document []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(document) {
		if r >= ' ' && acts(r) { // within a string; what is below are line breaks between them
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}

// acts is true for what a terminal does not show but acts on: C0 and C1 controls, and changes of the direction of text.
func acts(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// valid replaces bytes that are no UTF-8: alone, they may be C1 controls.
func valid(text string) string { return strings.ToValidUTF8(text, string(unicode.ReplacementChar)) }
