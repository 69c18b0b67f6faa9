//! A container, a command, and a job in it. The image is the first argument, else that of the purpose `python`.

use coracle::{Container, ContainerOptions, Failure, WaitOptions};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let options = match std::env::args().nth(1) {
        Some(image) => ContainerOptions::image(&image).mount_cwd(false),
        None => ContainerOptions::purpose("python"),
    };
    let c = Container::create(options).await?;
    c.write_file("hello.txt", "hello from Rust\n").await?;
    let r = c.exec("cat hello.txt").await?;
    print_out(&r.stdout);
    let job = c.start("sleep 1; echo ready; sleep 600").await?;
    let waited = job.wait_for(WaitOptions::pattern("ready").from_offset(0)).await?;
    print_out(&format!("the job printed: {}\n", waited.line.unwrap_or_default()));
    c.destroy().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn print_out(text: &str) {
    print!("{text}");
}
