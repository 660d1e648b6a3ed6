// SPDX-License-Identifier: Apache-2.0

package nodestream

import (
	"fmt"
	"math"
	"net/url"
	"strconv"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// request is which log is asked for.
type request struct {
	v1alpha1.TalosMachineLogOptions
}

// parse reads the query of a request. ichor-apiserver has judged it already, so what is wrong here is a fault of one of the
// two.
func parse(query url.Values) (request, error) {
	var r request
	r.Service = query.Get("service")
	for name, to := range map[string]*bool{"kernel": &r.Kernel, "follow": &r.Follow} {
		if text := query.Get(name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return r, fmt.Errorf("%s: %q is neither true nor false", name, text)
			}
			*to = value
		}
	}
	if text := query.Get("tailLines"); text != "" {
		lines, err := strconv.ParseInt(text, 10, 64)
		if err != nil || lines < 0 || lines > math.MaxInt32 {
			return r, fmt.Errorf("tailLines: %q is no number of lines", text)
		}
		r.TailLines = &lines
	}
	if (r.Service == "") == !r.Kernel {
		return r, fmt.Errorf("either service or kernel has to be given")
	}
	return r, nil
}

// tail is how many of the last lines are wanted; -1 for all.
func (r request) tail() int32 {
	if r.TailLines == nil {
		return -1
	}
	return int32(*r.TailLines) //nolint:gosec // parse bounds it
}
