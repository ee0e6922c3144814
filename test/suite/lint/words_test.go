package lint

import (
	"go/scanner"
	"go/token"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// word is one that readers have to guess at, and what to write instead. The sentence around it is rewritten, with a plain
// subject and verb; the word is not only replaced.
type word struct {
	form    *regexp.Regexp
	instead string
}

var refusedWords = []word{
	refusedWord(`anew`, "again, or say what is recreated, restarted or opened again"),
	refusedWord(`meanwhile`, "during ..., until then, or in between"),
	refusedWord(`who(m)?ever`, "the subject: any user, a client, the process that ..."),
	refusedWord(`somebody('s)?`, "the subject: another process, another client, a user"),
	refusedWord(`nobody('s)?`, "no one, or better the subject: no pod, no client, no process"),
	refusedWord(`see(s|n)? to`, "reconcile, handle, make sure"),
	refusedWord(`settle(s|d)?|settling`, "what is done: select, finish, apply, record"),
	refusedWord(`let(s|ting)? go( of)?`, "release, close, detach, remove the finalizer"),
	refusedWord(`(is|are|was|be) wanted|wanted (no|any) more`, "desired, needed, requested"),
	refusedWord(`asked for`, "requested, specified"),
	refusedWord(`tells?|told|telling`, "report, say, show, notify; distinguish for tell apart"),
	refusedWord(`left to hands`, "what a user does by hand"),
}

func refusedWord(form, instead string) word {
	return word{regexp.MustCompile(`(?i)\b(` + form + `)\b`), instead}
}

// A name of a function has these words in it, not beside it.
var refusedName = regexp.MustCompile(`(?:^|[a-z0-9])(?:[sS]ettle[sd]?|[lL]etGo|[sS]eeTo)(?:[A-Z]|$)`)

// ofOthers are the beginnings of paths that are written by generators, or come from other projects.
var ofOthers = []string{"api/client/", "deploy/chart/crds/", "deploy/chart/files/", "deploy/crds/", "deploy/install.yaml", "deploy/olm/bundle/", "deploy/snapshots/", "images/nfs/passwd"}

func TestWords_AreThoseOfTheField(t *testing.T) {
	files := wordFiles(t)
	for _, file := range files {
		for _, found := range wordsIn(file, read(t, file)) {
			t.Error(found)
		}
	}
	if len(files) < 900 {
		t.Errorf("only %d files were read", len(files))
	}
}

// wordFiles are the files in the repository that people write, but for this one.
func wordFiles(t *testing.T) (files []string) {
	t.Helper()
	listed, err := exec.CommandContext(t.Context(), "git", "-C", repository, "ls-files").Output()
	if err != nil {
		t.Skipf("the files of the repository cannot be listed: %v", err)
	}
	for file := range strings.Lines(string(listed)) {
		file = strings.TrimSpace(file)
		within := func(prefix string) bool { return strings.HasPrefix(file, prefix) }
		if slices.ContainsFunc(ofOthers, within) ||
			strings.HasPrefix(path.Base(file), "zz_generated") || file == "test/suite/lint/words_test.go" {
			continue
		}
		if slices.Contains([]string{"", ".go", ".md", ".sh", ".yaml", ".yml"}, path.Ext(file)) {
			files = append(files, file)
		}
	}
	return files
}

// wordsIn returns where refused words are in a file: of a source in Go, in its comments and texts and the names of functions.
func wordsIn(file, text string) (found []string) {
	note := func(line int, form, instead string) {
		found = append(found, file+":"+strconv.Itoa(line)+": "+form+": write "+instead)
	}
	refuse := func(line int, text string) {
		for _, w := range refusedWords {
			for _, at := range w.form.FindAllStringIndex(text, -1) {
				note(line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]], w.instead)
			}
		}
	}
	if path.Ext(file) != ".go" {
		refuse(1, text)
		return found
	}
	var lexer scanner.Scanner
	set := token.NewFileSet()
	source := set.AddFile(file, -1, len(text))
	lexer.Init(source, []byte(text), nil, scanner.ScanComments)
	for named := false; ; {
		position, kind, literal := lexer.Scan()
		switch {
		case kind == token.EOF:
			return found
		case kind == token.COMMENT || kind == token.STRING:
			refuse(source.Line(position), literal)
		case kind == token.FUNC:
			named = true
		case kind == token.LBRACE:
			named = false
		case kind == token.IDENT && named && refusedName.MatchString(literal):
			note(source.Line(position), literal, "a name after what it does")
		}
	}
}
