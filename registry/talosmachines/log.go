// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// NodeStreams is where ichor-controller serves machines' logs; without a URL nowhere.
type NodeStreams struct {
	URL       *url.URL
	Transport http.RoundTripper
}

// LogREST is talosmachines/log: what one of a machine's services, or its kernel, has logged. This server judges who may
// read and passes on what ichor-controller reads, as the kube-apiserver does with kubelets; it has no access to machines.
//
// It is called log, not logs: the kube-apiserver ends requests after a minute but for those whose subresource has one of a
// few names, as that of pods. Source: Kubernetes, pkg/controlplane/apiserver/config.go (LongRunningFunc).
type LogREST struct {
	machines *genericregistry.Store
	streams  NodeStreams
}

var (
	_ rest.GetterWithOptions = &LogREST{}
	_ rest.Storage           = &LogREST{}
	_ rest.StorageMetadata   = &LogREST{}
)

// NewLog builds the subresource.
func (s *Storage) NewLog(streams NodeStreams) *LogREST {
	return &LogREST{machines: s.Machine.Store, streams: streams}
}

// New returns an empty machine: the answer is text.
func (*LogREST) New() runtime.Object { return &ichor.TalosMachine{} }

// Destroy does nothing: the store belongs to the main resource.
func (*LogREST) Destroy() {}

// ProducesMIMETypes says that the answer is text.
func (*LogREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject says the same for the description of the API.
func (*LogREST) ProducesObject(string) any { return "" }

// NewGetOptions are the query parameters.
func (*LogREST) NewGetOptions() (runtime.Object, bool, string) {
	return &ichor.TalosMachineLogOptions{}, false, ""
}

// serviceName is what services of Talos, and of extensions (ext-NAME), are called.
var serviceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$`)

func validateLogOptions(options *ichor.TalosMachineLogOptions) field.ErrorList {
	var errs field.ErrorList
	switch {
	case options.Kernel && options.Service != "":
		errs = append(errs, field.Invalid(field.NewPath("service"), options.Service, "can't be given together with kernel"))
	case !options.Kernel && options.Service == "":
		errs = append(errs, field.Required(field.NewPath("service"), "one of Talos' services, such as kubelet, apid, machined, containerd, cri or etcd; or kernel=true for the kernel's messages"))
	case !options.Kernel && !serviceName.MatchString(options.Service):
		errs = append(errs, field.Invalid(field.NewPath("service"), options.Service, "is no name of a service"))
	}
	lines := options.TailLines
	switch {
	case lines == nil:
	case *lines < 0 || *lines > math.MaxInt32:
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *lines, fmt.Sprintf("must be between 0 and %d", math.MaxInt32)))
	case options.Kernel && options.Follow && *lines > 0:
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *lines, "the kernel's messages can be followed from their beginning (without tailLines), or from now on (0)"))
	}
	return errs
}

// Get finds out where the log is to be had.
func (r *LogREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	wanted, ok := options.(*ichor.TalosMachineLogOptions)
	if !ok {
		return nil, apierrors.NewBadRequest("no options of a log were given")
	}
	if errs := validateLogOptions(wanted); len(errs) > 0 {
		return nil, apierrors.NewInvalid(ichor.Kind("TalosMachineLogOptions"), name, errs)
	}
	if _, err := r.machines.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	if r.streams.URL == nil {
		return nil, apierrors.NewServiceUnavailable("ichor-apiserver was started without --node-stream-ca-file, so no logs of machines can be read")
	}
	return &stream{
		LocationStreamer: genericrest.LocationStreamer{
			Location: r.streams.URL.JoinPath("machines", name, "log"), Transport: r.streams.Transport, ContentType: "text/plain",
			Flush: wanted.Follow, RedirectChecker: genericrest.PreventRedirects, ResponseChecker: statusChecker{},
		},
		query: queryOf(wanted),
	}, nil
}

func queryOf(options *ichor.TalosMachineLogOptions) url.Values {
	query := url.Values{}
	if options.Service != "" {
		query.Set("service", options.Service)
	}
	if options.Kernel {
		query.Set("kernel", "true")
	}
	if options.Follow {
		query.Set("follow", "true")
	}
	if options.TailLines != nil {
		query.Set("tailLines", strconv.FormatInt(*options.TailLines, 10))
	}
	return query
}

// stream is a log that comes from ichor-controller.
type stream struct {
	genericrest.LocationStreamer
	query url.Values
}

// InputStream begins to read. A controller that can't be reached is no fault of this server's.
func (s *stream) InputStream(ctx context.Context, apiVersion, acceptHeader string) (io.ReadCloser, bool, string, error) {
	at := s.LocationStreamer
	where := *at.Location
	where.RawQuery = s.query.Encode()
	at.Location = &where
	reader, flush, kind, err := at.InputStream(ctx, apiVersion, acceptHeader)
	if _, known := err.(apierrors.APIStatus); err != nil && !known { //nolint:errorlint // what the checker below returned
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("ichor-controller, which reads machines' logs, can't be reached: %s", err))
	}
	return reader, flush, kind, err
}

// maxStatus bounds the controller's answer where it has no log.
const maxStatus = 64 << 10

// statusChecker turns the controller's refusal into this server's.
type statusChecker struct{}

// Check returns the Status that the controller answered with.
func (statusChecker) Check(response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	defer response.Body.Close() //nolint:errcheck // it is not read further
	var status metav1.Status
	text, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil || status.Code < http.StatusBadRequest {
		return apierrors.NewServiceUnavailable("ichor-controller, which reads machines' logs, answers " + response.Status)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
