// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"maesh.dev/ichor/test/hollow/node"
)

// replyLimit bounds an answer: the status of ten thousand machines takes about 10 MB.
const replyLimit = 64 << 20

// Client speaks to the socket of a running process. It keeps no connection.
type Client struct {
	path string
	http *http.Client
}

// NewClient makes a client of a socket; nothing is opened yet.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{
		Timeout: answerLimit, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// All is the status of every machine, in the order of the fleet.
func (c *Client) All(ctx context.Context) ([]node.Status, error) {
	var list []node.Status
	return list, c.decode(ctx, &list, http.MethodGet, "/status")
}

// Status is that of one machine.
func (c *Client) Status(ctx context.Context, machine string) (node.Status, error) {
	var status node.Status
	return status, c.decode(ctx, &status, http.MethodGet, commandPath("status", machine, nil))
}

// Applies are the configurations that a machine was sent.
func (c *Client) Applies(ctx context.Context, machine string) ([]node.Apply, error) {
	var applies []node.Apply
	return applies, c.decode(ctx, &applies, http.MethodGet, commandPath("applies", machine, nil))
}

// Do runs any command for a machine and returns the JSON of its result. Without a machine it is status, of all.
func (c *Client) Do(ctx context.Context, verb, machine string, args ...string) (json.RawMessage, error) {
	if known, ok := commands[verb]; !ok {
		return nil, fmt.Errorf("%q: no such command; there are\n%s", verb, Usage())
	} else if machine == "" && verb != "status" {
		return nil, fmt.Errorf("%s: no machine named; want %s", verb, strings.Join(append([]string{verb, "MACHINE"}, known.args...), " "))
	} else if known.read {
		if machine == "" {
			return c.call(ctx, http.MethodGet, "/status")
		}
		return c.call(ctx, http.MethodGet, commandPath(verb, machine, args))
	}
	return c.call(ctx, http.MethodPost, commandPath(verb, machine, args))
}

func commandPath(verb, machine string, args []string) string {
	path := "/" + url.PathEscape(verb) + "/" + url.PathEscape(machine)
	if len(args) > 0 {
		path += "?" + url.Values{"arg": args}.Encode()
	}
	return path
}

func (c *Client) decode(ctx context.Context, into any, method, path string) error {
	data, err := c.call(ctx, method, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("control socket %s: %s %s: %w", c.path, method, path, err)
	}
	return nil
}

// call is one exchange.
func (c *Client) call(ctx context.Context, method, path string) (json.RawMessage, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://hollow"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w; does `hollow run` run with this socket?", c.path, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	data, err := io.ReadAll(io.LimitReader(response.Body, replyLimit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("control socket %s: read the answer: %w", c.path, err)
	case len(data) > replyLimit:
		return nil, fmt.Errorf("control socket %s: the answer has more than %d bytes", c.path, replyLimit)
	case response.StatusCode != http.StatusOK:
		return nil, &Error{Code: response.StatusCode, Text: strings.TrimSpace(string(data))}
	}
	return data, nil
}

// Error is an answer that says no.
type Error struct {
	// Code is the HTTP status.
	Code int
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }
