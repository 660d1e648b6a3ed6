// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxSecret is the length of the longest secret that is read.
const maxSecret = 4096

// Secret asks for something that nobody may see: on a terminal without echo. It ends with the context; the terminal is
// then as it was.
func Secret(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	_, _ = fmt.Fprintf(out, "%s: ", question)
	defer fmt.Fprintln(out) //nolint:errcheck // the person's line feed wasn't echoed
	read := func() (string, error) { return readLine(in) }
	if file, isFile := in.(*os.File); isFile && term.IsTerminal(int(file.Fd())) {
		before, err := term.GetState(int(file.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(file.Fd()), before) //nolint:errcheck // the best that can be done
		read = func() (string, error) {
			text, err := term.ReadPassword(int(file.Fd()))
			return string(text), err
		}
	}
	type result struct {
		text string
		err  error
	}
	answered := make(chan result, 1)
	// A read from a terminal can't be cancelled: it is left behind when the context ends, and with it the program.
	go func() {
		text, err := read()
		answered <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-answered:
		if got.err == io.EOF && got.text == "" {
			return "", ErrAborted
		}
		return got.text, nil
	}
}

func readLine(in io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(in, maxSecret)).ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
