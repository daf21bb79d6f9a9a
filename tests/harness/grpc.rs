//! Unary calls of gRPC.

use bytes::Bytes;
use http::Request;

use super::{Gateway, deadline};

/// A field of protobuf with a length.
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()][..], value].concat()
}

/// A message of gRPC.
pub fn framed(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

/// Calls over one HTTP/2 connection: the message of each answer, and its status.
pub fn calls(gateway: &Gateway, calls: &[(&str, Bytes)]) -> Vec<(Vec<u8>, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async {
        let stream = tokio::net::TcpStream::connect(gateway.edge).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut answers = Vec::new();
        for (path, body) in calls {
            let request = Request::post(format!("http://rls.test{path}")).header("te", "trailers");
            let request = request.header("content-type", "application/grpc").body(()).unwrap();
            let (answer, mut upload) = sender.send_request(request, false).unwrap();
            upload.send_data(body.clone(), true).unwrap();
            let (head, mut body) = answer.await.unwrap().into_parts();
            assert_eq!(
                (head.status.as_u16(), &head.headers["content-type"]),
                (200, &"application/grpc".parse().unwrap())
            );
            let mut message = Vec::new();
            while let Some(piece) = body.data().await {
                message.extend_from_slice(&piece.unwrap());
            }
            let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
            answers.push((message, trailers["grpc-status"].to_str().unwrap().to_owned()));
        }
        connection.abort();
        answers
    };
    runtime.block_on(async { tokio::time::timeout(deadline(), work).await.expect("answers in time") })
}
