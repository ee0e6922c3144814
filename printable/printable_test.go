package printable

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestText_HasNothingThatATerminalActsOn(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		" two\n\twords ":                        "two words",
		"größer als 10 €":                       "größer als 10 €",
		"a\x1b[2J\x1b[HAll is well":             "a [2J [HAll is well",
		"a\u009b2Jb":                            "a 2Jb",
		"a\x9b2Jb":                              "a\ufffd2Jb", // a byte of protobuf, which is not checked for UTF-8
		"a\x1b]0;title\ab":                      "a ]0;title b",
		"over\rwritten\b\x7f\x00":               "over written",
		"a\u202eb\u2066c":                       "a b c",
		"\u00a0a\u2028b\u0085c":                 "a b c",
		strings.Repeat("\x1b[2J", 2) + "\x1b[m": "[2J [2J [m",
	} {
		got := Line(text)
		if got != want {
			t.Errorf("%q is %q in one line, want %q", text, got, want)
		}
		lines := Lines(text)
		if again := Line(lines); again != want {
			t.Errorf("%q is %q in lines, want %q", text, again, want)
		}
		document := check.Got(json.MarshalIndent([]string{text}, "", "  "))(t)
		escaped := JSON(document)
		for _, r := range lines + string(escaped) {
			if r != '\n' && r != '\t' && acts(r) {
				t.Errorf("%q has %q", text, r)
			}
		}
		var read []string
		if err := json.Unmarshal(escaped, &read); err != nil || read[0] != strings.ToValidUTF8(text, "\ufffd") {
			t.Errorf("%q is read as %q from %s: %v", text, read, escaped, err)
		}
	}
}

func TestLines_KeepsTheShapeOfADocument(t *testing.T) {
	const document = "---\nkind: A\nlist:\n  - \"b\\tc\"\n\tend\n"
	if got := Lines(document); got != document {
		t.Errorf("it is %q", got)
	}
}
