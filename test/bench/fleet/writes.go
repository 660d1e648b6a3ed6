// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"maesh.dev/ichor/artifacts"
)

// maxLine bounds a line of an audit log, which holds bodies.
const maxLine = 16 << 20

// auditEvent is what is counted of an audit log's line. Source: k8s.io/apiserver/pkg/apis/audit/v1 Event.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// writes counts by "verb resource/subresource".
type writes map[string]int

// controllerUser is who the controller is to the API.
var controllerUser = "system:serviceaccount:" + artifacts.Namespace + ":" + artifacts.ControllerName

// add counts an event if it is a finished write of the controller's; refused ones are told apart.
func (w writes) add(event auditEvent) {
	if event.User.Username != controllerUser || event.Stage != "ResponseComplete" {
		return
	}
	switch event.Verb {
	case "create", "update", "patch", "delete":
	default:
		return
	}
	key := event.Verb + " " + event.ObjectRef.Resource
	if sub := event.ObjectRef.Subresource; sub != "" {
		key += "/" + sub
	}
	if code := event.ResponseStatus.Code; code >= 400 {
		key += fmt.Sprintf(" (%d)", code)
	}
	w[key]++
}

func (w writes) total() int {
	sum := 0
	for _, n := range w {
		sum += n
	}
	return sum
}

// readWrites counts the controller's writes in audit logs.
func readWrites(paths ...string) (writes, error) {
	out := writes{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("count writes: %w", err)
		}
		err = errors.Join(out.read(file), file.Close())
		if err != nil {
			return nil, fmt.Errorf("count writes in %s: %w", path, err)
		}
	}
	return out, nil
}

func (w writes) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		var event auditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("line %.80q: %w", strings.TrimSpace(lines.Text()), err)
		}
		w.add(event)
	}
	return lines.Err()
}
