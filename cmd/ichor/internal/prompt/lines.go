// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Lines asks line by line, without boxes and redraws.
type Lines struct {
	in  *bufio.Reader
	out io.Writer
}

// NewLines makes an asker that reads answers from in and writes questions to out.
func NewLines(in io.Reader, out io.Writer) *Lines {
	return &Lines{in: bufio.NewReader(in), out: out}
}

// Ask implements Asker.
func (l *Lines) Ask(ctx context.Context, pages []Page) (Answers, error) {
	answers := Answers{}
	for i := range pages {
		if !pages[i].applies(answers) {
			continue
		}
		l.printf("\n%s\n", pages[i].Title)
		for j := range pages[i].Questions {
			question := &pages[i].Questions[j]
			answer, err := l.ask(ctx, question, answers)
			if err != nil {
				return nil, err
			}
			answers[question.Key] = answer
		}
	}
	return answers, nil
}

func (l *Lines) ask(ctx context.Context, question *Question, answers Answers) (string, error) {
	fallback := question.fallback(answers)
	l.printf("\n%s\n", question.Title)
	if question.Help != "" {
		l.printf("%s\n", question.Help)
	}
	shown := fallback
	for i, option := range question.Options {
		l.printf("  %d. %s\n", i+1, option.Label)
		if option.Value == fallback && fallback != "" {
			shown = strconv.Itoa(i + 1)
		}
	}
	for {
		l.printf("%s", linePrompt(question, shown))
		line, err := l.readLine(ctx)
		if err != nil {
			return "", err
		}
		answer, err := question.read(line, fallback)
		if err == nil {
			return answer, nil
		}
		l.printf("%s\n", err)
	}
}

func linePrompt(question *Question, fallback string) string {
	prompt := "Answer"
	if len(question.Options) > 0 {
		prompt = fmt.Sprintf("Number, 1 to %d", len(question.Options))
	}
	if fallback != "" {
		prompt += " [" + fallback + "]"
	}
	return prompt + ": "
}

// read makes an answer of a typed line.
func (q *Question) read(line, fallback string) (string, error) {
	answer := strings.TrimSpace(line)
	if answer == "" {
		answer = fallback
	} else if len(q.Options) > 0 {
		number, err := strconv.Atoi(answer)
		if err != nil || number < 1 || number > len(q.Options) {
			return "", fmt.Errorf("%q is no number from 1 to %d", answer, len(q.Options))
		}
		answer = q.Options[number-1].Value
	}
	return answer, q.check(answer)
}

// Confirm implements Asker.
func (l *Lines) Confirm(ctx context.Context, question string) (bool, error) {
	l.printf("\n%s [y/N]: ", question)
	line, err := l.readLine(ctx)
	if err != nil {
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// readLine reads one line, or ends with the context: a read from a terminal can't be cancelled, so the reader is left
// behind, and a reader that was left behind is never read from again because every caller gives up with the context.
func (l *Lines) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := l.in.ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-read:
		if got.err == io.EOF && got.line != "" {
			return got.line, nil
		}
		if got.err == io.EOF {
			return "", ErrAborted
		}
		return got.line, got.err
	}
}

func (l *Lines) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(l.out, format, args...)
}
