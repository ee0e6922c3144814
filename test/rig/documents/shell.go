package documents

import (
	"slices"
	"strings"
)

// Call is one simple command of a shell, with its words unquoted and what it reads from a here-document.
type Call struct {
	Words []string
	Stdin string
}

// structure are words of a shell that come before a command, or stand for none.
var structure = []string{"do", "done", "then", "else", "fi", "esac", "while", "if", "in", "!", "sudo", "exec", "time"}

// Shell splits a script into its commands, those of $(...) included. It knows what the documents use, no more.
func Shell(script string) []Call {
	var s splitter
	for i := 0; i < len(script); {
		i += s.step(script[i:])
	}
	s.endCall()
	return s.all
}

// splitter has the commands that have ended, and what was read of the next one.
type splitter struct {
	all    []Call
	now    Call
	word   strings.Builder
	inWord bool
}

func (s *splitter) take(text string) {
	s.word.WriteString(text)
	s.inWord = true
}

func (s *splitter) endWord() {
	if s.inWord && (len(s.now.Words) > 0 || !slices.Contains(structure, s.word.String())) {
		s.now.Words = append(s.now.Words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}

func (s *splitter) endCall() {
	s.endWord()
	for len(s.now.Words) > 0 && assignment(s.now.Words[0]) {
		s.now.Words = s.now.Words[1:]
	}
	if len(s.now.Words) > 0 {
		s.all = append(s.all, s.now)
	}
	s.now = Call{}
}

// step reads what a script begins with, and returns its length.
func (s *splitter) step(rest string) int {
	line, _, _ := strings.Cut(rest, "\n")
	switch {
	case strings.HasPrefix(rest, "\\\n"):
		return 2
	case strings.HasPrefix(rest, "$("):
		inner := nested(rest[2:])
		s.all = append(s.all, Shell(inner)...)
		s.take("$()")
		return len(inner) + 3
	case rest[0] == '\'':
		text, _, _ := strings.Cut(rest[1:], "'")
		s.take(text)
		return len(text) + 2
	case rest[0] == '"':
		text, inner := quoted(rest[1:])
		s.all = append(s.all, inner...)
		s.take(text)
		return len(text) + 2
	case strings.HasPrefix(rest, "<<<"):
		s.endWord()
		s.now.Stdin = Shell("x " + strings.TrimLeft(line[3:], " "))[0].Words[1]
		return len(line)
	case strings.HasPrefix(rest, "<<"):
		text := document(rest[2:])
		s.now.Stdin = text
		s.endCall()
		return len(line) + len(text) + len(strings.Trim(line[2:], " '\"")) + 1
	case rest[0] == '#' && !s.inWord:
		return len(line)
	case strings.ContainsRune("|;&()\n", rune(rest[0])):
		s.endCall()
	case rest[0] == '>' || rest[0] == '<':
		s.endWord()
		s.now.Words = append(s.now.Words, rest[:1])
	case rest[0] == ' ':
		s.endWord()
	default:
		s.take(rest[:1])
	}
	return 1
}

// document is the text of a here-document, after the line that names its last line.
func document(rest string) string {
	mark, body, _ := strings.Cut(rest, "\n")
	text, _, _ := strings.Cut("\n"+body, "\n"+strings.Trim(mark, " '\""))
	return text
}

// quoted is the text up to the quote that closes it, and the commands in it.
func quoted(text string) (inside string, all []Call) {
	end := 0
	for end < len(text) && text[end] != '"' {
		if strings.HasPrefix(text[end:], "$(") {
			inner := nested(text[end+2:])
			all = append(all, Shell(inner)...)
			end += len(inner) + 2
		}
		end++
	}
	return text[:min(end, len(text))], all
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
