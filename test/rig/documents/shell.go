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
func Shell(script string) (all []Call) {
	var word strings.Builder
	inWord, now := false, Call{}
	endWord := func() {
		if inWord && (len(now.Words) > 0 || !slices.Contains(structure, word.String())) {
			now.Words = append(now.Words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCall := func() {
		endWord()
		for len(now.Words) > 0 && assignment(now.Words[0]) {
			now.Words = now.Words[1:]
		}
		if len(now.Words) > 0 {
			all = append(all, now)
		}
		now = Call{}
	}
	take := func(text string) { word.WriteString(text); inWord = true }
	for i := 0; i < len(script); i++ {
		rest := script[i:]
		switch {
		case strings.HasPrefix(rest, "\\\n"):
			i++
		case strings.HasPrefix(rest, "$("):
			inner := nested(rest[2:])
			all = append(all, Shell(inner)...)
			take("$()")
			i += len(inner) + 2
		case rest[0] == '\'':
			text, _, _ := strings.Cut(rest[1:], "'")
			take(text)
			i += len(text) + 1
		case rest[0] == '"':
			text, inner := quoted(rest[1:])
			all = append(all, inner...)
			take(text)
			i += len(text) + 1
		case strings.HasPrefix(rest, "<<<"):
			endWord()
			inner := Shell("x " + strings.TrimLeft(strings.SplitN(rest[3:], "\n", 2)[0], " "))
			now.Stdin = inner[0].Words[1]
			i += len(strings.SplitN(rest, "\n", 2)[0]) - 1
		case strings.HasPrefix(rest, "<<"):
			first, body, _ := strings.Cut(rest[2:], "\n")
			mark := strings.Trim(first, " '\"")
			text, _, _ := strings.Cut("\n"+body, "\n"+mark)
			now.Stdin = text
			endCall()
			i += 2 + len(first) + len(text) + len(mark)
		case rest[0] == '#' && !inWord:
			i += len(strings.SplitN(rest, "\n", 2)[0]) - 1
		case strings.ContainsRune("|;&()\n", rune(rest[0])):
			endCall()
		case rest[0] == '>' || rest[0] == '<':
			endWord()
			now.Words = append(now.Words, rest[:1])
		case rest[0] == ' ':
			endWord()
		default:
			take(rest[:1])
		}
	}
	endCall()
	return all
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
