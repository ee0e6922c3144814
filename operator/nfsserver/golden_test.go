package nfsserver

import (
	"flag"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden_EachSpecRendersItsObjects compares with testdata/specs.txt: what is rendered of the first spec, and then, for each
// spec, the lines that it adds (+) and takes away (-). go test -update writes the file; read what it changes.
func TestGolden_EachSpecRendersItsObjects(t *testing.T) {
	const file = "testdata/specs.txt"
	golden := check.Got(os.ReadFile(file))(t)
	sections := strings.Split(string(golden), "\n== ")
	written, usual := sections[0], []string{}
	if len(sections) < 2 {
		t.Fatal("the golden file has no spec")
	}
	for i, section := range sections[1:] {
		name, rest, _ := strings.Cut(section, "\n")
		text, want, _ := strings.Cut(rest, "--\n")
		var spec v1beta1.NFSServerSpec
		if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var lines []string
		for _, o := range asked(func(s *v1beta1.NFSServerSpec) { *s = spec }).objects() {
			encoded := check.Got(yaml.Marshal(o.Object))(t)
			lines = append(lines, strings.SplitAfter(string(encoded), "\n")...)
		}
		got := without("+ ", lines, usual) + without("- ", usual, lines)
		if i == 0 {
			usual = lines
		}
		written += "\n== " + name + "\n" + text + "--\n" + got
		if strings.TrimSpace(got) != strings.TrimSpace(want) && !*update {
			t.Errorf("%s: rendered is\n%s", name, got)
		}
	}
	if *update {
		check.OK(t, os.WriteFile(file, []byte(written), 0o600))
	}
}

// without is what the lines have that others do not, or more often.
func without(sign string, lines, others []string) (text string) {
	left := map[string]int{}
	for _, line := range others {
		left[line]++
	}
	for _, line := range lines {
		if left[line]--; left[line] < 0 && line != "" {
			text += sign + line
		}
	}
	return text
}
