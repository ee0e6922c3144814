package lint

import (
	"slices"
	"strings"
	"testing"
)

// shellCall is one simple command of a shell, with its words unquoted and what it reads from a here-document.
type shellCall struct {
	words []string
	stdin string
}

// structure are words of a shell that come before a command, or stand for none.
var structure = []string{"do", "done", "then", "else", "fi", "esac", "while", "if", "in", "!", "sudo", "exec", "time"}

// shell splits a script into its commands, those of $(...) included. It knows what the documents use, no more.
func shell(script string) (all []shellCall) {
	var word strings.Builder
	inWord, now := false, shellCall{}
	endWord := func() {
		if inWord && (len(now.words) > 0 || !slices.Contains(structure, word.String())) {
			now.words = append(now.words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCall := func() {
		endWord()
		for len(now.words) > 0 && assignment(now.words[0]) {
			now.words = now.words[1:]
		}
		if len(now.words) > 0 {
			all = append(all, now)
		}
		now = shellCall{}
	}
	take := func(text string) { word.WriteString(text); inWord = true }
	for i := 0; i < len(script); i++ {
		rest := script[i:]
		switch {
		case strings.HasPrefix(rest, "\\\n"):
			i++
		case strings.HasPrefix(rest, "$("):
			inner := nested(rest[2:])
			all = append(all, shell(inner)...)
			take("$()")
			i += len(inner) + 2
		case rest[0] == '\'':
			text, _, _ := strings.Cut(rest[1:], "'")
			take(text)
			i += len(text) + 1
		case rest[0] == '"':
			end := 1
			for end < len(rest) && rest[end] != '"' {
				if strings.HasPrefix(rest[end:], "$(") {
					inner := nested(rest[end+2:])
					all = append(all, shell(inner)...)
					end += len(inner) + 2
				}
				end++
			}
			take(rest[1:min(end, len(rest))])
			i += end
		case strings.HasPrefix(rest, "<<<"):
			endWord()
			inner := shell("x " + strings.TrimLeft(strings.SplitN(rest[3:], "\n", 2)[0], " "))
			now.stdin = inner[0].words[1]
			i += len(strings.SplitN(rest, "\n", 2)[0]) - 1
		case strings.HasPrefix(rest, "<<"):
			first, body, _ := strings.Cut(rest[2:], "\n")
			mark := strings.Trim(first, " '\"")
			text, _, _ := strings.Cut("\n"+body, "\n"+mark)
			now.stdin = text
			endCall()
			i += 2 + len(first) + len(text) + len(mark)
		case rest[0] == '#' && !inWord:
			i += len(strings.SplitN(rest, "\n", 2)[0]) - 1
		case strings.ContainsRune("|;&()\n", rune(rest[0])):
			endCall()
		case rest[0] == '>' || rest[0] == '<':
			endWord()
			now.words = append(now.words, rest[:1])
		case rest[0] == ' ':
			endWord()
		default:
			take(rest[:1])
		}
	}
	endCall()
	return all
}

// nested is the text up to the parenthesis that closes it.
func nested(text string) string {
	open := 1
	for i, r := range text {
		switch r {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return text[:i]
			}
		}
	}
	return text
}

// assignment says whether a word sets a variable of the environment.
func assignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz") == ""
}

func TestShell_ScriptIsSplitIntoItsCommands(t *testing.T) {
	script := "A=1 make x | kubectl apply -f - # why\n" +
		"kubectl patch a b \\\n  -p '{\"a\":\"'\"$id\"'\"}' && sudo go test ./x\n" +
		"id=$(kubectl get c)\nwhile read -r name; do echo \"$(date)\" >>left; done\n" +
		"kubectl create -f - <<<'{\"a\":1}'\nkubectl apply -f - <<END\na: 1\nEND\nlast"
	var got []string
	for _, c := range shell(script) {
		got = append(got, strings.Join(c.words, " ")+"/"+strings.TrimSpace(c.stdin))
	}
	want := []string{
		"make x/", "kubectl apply -f -/", `kubectl patch a b -p {"a":"$id"}/`, "go test ./x/", "kubectl get c/",
		"read -r name/", "date/", "echo $(date) > > left/", `kubectl create -f -/{"a":1}`, "kubectl apply -f -/a: 1", "last/",
	}
	if id := slices.Index(got, "$()/"); id >= 0 {
		got = slices.Delete(got, id, id+1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
